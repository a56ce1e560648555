"""`assay` and `python -m assay`: the command line, quiet if it is interrupted while it is still imported.

Threads of the judge sleep while they wait, as those of its children do: where cores are few or shared, they
would take them from who has work.
"""

from __future__ import annotations

import os
import signal


def main() -> None:
    signal.signal(signal.SIGINT, _leave)
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # read when torch is loaded
    from assay.cli.main import main as run

    signal.signal(signal.SIGINT, signal.default_int_handler)
    run()


def _leave(_number: int, _frame: object) -> None:
    os.write(2, b"assay: interrupted\n")
    os._exit(2)


if __name__ == "__main__":
    main()
