"""Tables of the report, and how figures are written in them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape


def table(head: Sequence[str], rows: Iterable[Sequence[str]], first_number: int = 1) -> str:
    """Cells are HTML; columns from `first_number` on are numbers."""
    kinds = ["" if k < first_number else ' class="n"' for k in range(len(head))]
    top = "".join(f"<th{kind}>{name}</th>" for kind, name in zip(kinds, head, strict=True))
    body = "".join(
        f"<tr>{''.join(f'<td{kind}>{cell}</td>' for kind, cell in zip(kinds, row, strict=True))}</tr>"
        for row in rows
    )
    return f'<div class="wide"><table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table></div>'


def share(value: float | None) -> str:
    return "" if value is None else f"{value:.1%}"


def number(value: float | None, digits: int = 3) -> str:
    return "" if value is None else f"{value:.{digits}f}"


def anchor(problem: str) -> str:
    """Where a problem's section is."""
    return "p-" + escape(problem, quote=True)
