"""`assay` and `python -m assay`: the command line, quiet if it is interrupted while it is still imported."""

from __future__ import annotations

import os
import signal


def main() -> None:
    signal.signal(signal.SIGINT, _leave)
    from assay.cli.main import main as run

    signal.signal(signal.SIGINT, signal.default_int_handler)
    run()


def _leave(_number: int, _frame: object) -> None:
    os.write(2, b"assay: interrupted\n")
    os._exit(2)


if __name__ == "__main__":
    main()
