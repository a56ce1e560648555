"""A verdict read back from its JSON form: the status says which of the six kinds it is."""

from __future__ import annotations

from typing import Any

from assay.records.codec import from_plain
from assay.records.errors import UserError
from assay.records.verdict import VERDICTS, Verdict


def decode_verdict(plain: Any) -> Verdict:
    """The verdict in a decoded JSON object; raises UserError that names what does not fit."""
    status = plain.get("status") if isinstance(plain, dict) else None
    for kind in VERDICTS:
        if kind.status == status:
            return from_plain(kind, plain, "verdict")
    raise UserError(f"verdict: no such status: {status!r}")
