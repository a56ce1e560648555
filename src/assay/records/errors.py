"""The three families of errors.

    AssayError
    ├── UserError         the person can fix it: one line that says how, no traceback, exit 2
    │   └── FlawedProblem   the problem cannot tell right from wrong
    ├── CandidateFailure  the candidate did it: becomes a verdict, never propagates past the judge
    └── JudgeFault        we did it: fails the run loudly, exit 2, never a verdict

In a judge a swallowed exception is a wrong verdict, so nothing here is caught with `except Exception`
outside the two process edges (the child's main loop and the command line).
"""

from __future__ import annotations


class AssayError(Exception):
    """Base of everything Assay raises on purpose."""


class UserError(AssayError):
    """The input is wrong; the message says what to do about it."""


class FlawedProblem(UserError):
    """No case of the problem can tell a right answer from a wrong one."""


class JudgeFault(AssayError):
    """The judge itself failed; no verdict may be drawn."""


class CandidateFailure(AssayError):
    """The candidate failed in a way that ends the run; `status` is the verdict it becomes."""

    def __init__(self, status: str, code: str, message: str, detail: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.detail = detail
