"""The command line. One of the two process edges: errors meant for people end here as one line.

Exit codes: 0 passed, 1 not passed, 2 usage or judge fault.
"""

from __future__ import annotations

import atexit
import gc
import signal
import sys
import traceback
from typing import NoReturn

import click

import assay
from assay.cli.bench import bench
from assay.cli.calibrate import calibrate
from assay.cli.check import check
from assay.cli.doctor import doctor
from assay.cli.evaluate import evaluate
from assay.cli.mcp import mcp
from assay.cli.profile import profile
from assay.cli.publish import publish, verify
from assay.cli.redteam import redteam
from assay.cli.report import compare, report
from assay.cli.search import search
from assay.cli.serve import serve_judge
from assay.cli.suite import suite
from assay.records import AssayError, JudgeFault


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(assay.__version__, prog_name="assay")
def cli() -> None:
    """Finds GPU kernels that are right, fast and honest, and proves it."""


cli.add_command(calibrate)
cli.add_command(check)
cli.add_command(bench)
cli.add_command(doctor)
cli.add_command(evaluate)
cli.add_command(mcp)
cli.add_command(profile)
cli.add_command(publish)
cli.add_command(redteam)
cli.add_command(report)
cli.add_command(compare)
cli.add_command(search)
cli.add_command(serve_judge)
cli.add_command(suite)
cli.add_command(verify)


def main() -> None:
    # Ended politely, the judge still takes its children and folders with it.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    atexit.register(gc.freeze)  # whoever ends needs no search for garbage, most of a second with torch
    # An interrupt that met a string which was run ends a module by the signal, though it was answered; unless
    # another string runs after it.
    atexit.register(exec, "", {})
    try:
        # Outside standalone mode click returns the code of an Exit instead of raising it.
        code = cli.main(standalone_mode=False) or 0
    except SystemExit:
        # Click's way out where the pipe it writes to is closed. A verdict never takes it: see `Terminal` for
        # closed pipes, and `told_apart` for problems that call sys.exit().
        sys.exit(2)
    except click.Abort:
        _fail("interrupted")
    except click.ClickException as error:
        error.show()
        sys.exit(2)
    except JudgeFault as fault:
        _fail(f"the judge failed, no verdict: {fault}")
    except AssayError as error:
        _fail(str(error))
    except Exception:  # noqa: BLE001 - the process edge: a fault of ours must not read as "not passed"
        traceback.print_exc()
        _fail("the judge failed, no verdict: this is a bug, please report it with the lines above")
    sys.exit(code)


def _fail(text: str) -> NoReturn:
    click.echo(f"assay: {text}", err=True)
    sys.exit(2)


if __name__ == "__main__":
    main()
