"""Rows of the table: norms, softmax and cross entropy, which are for a device's memory to do."""

from __future__ import annotations

from assay.tiles.table_row import Row, half

TORCH = "torch, compiled"


def rms_norm(rows: int, columns: int) -> Row:
    body = f"return F.rms_norm(x, ({columns},), w, 1e-6)"
    inputs = f"{half(rows, columns)}, {half(columns)}"
    return _row("rms_norm", rows, columns, "x, w", body, inputs)


def layer_norm(rows: int, columns: int) -> Row:
    body = f"return F.layer_norm(x, ({columns},), w, b, 1e-5)"
    inputs = f"{half(rows, columns)}, {half(columns)}, {half(columns)}"
    return _row("layer_norm", rows, columns, "x, w, b", body, inputs)


def softmax(rows: int, columns: int) -> Row:
    return _row("softmax", rows, columns, "x", "return torch.softmax(x, -1)", half(rows, columns))


def cross_entropy(rows: int, columns: int) -> Row:
    inputs = f"{half(rows, columns)}, torch.randint({columns}, ({rows},))"
    body, more = 'return F.cross_entropy(x, t, reduction="none")', ', reduction="none"'
    return _row("cross_entropy", rows, columns, "x, t", body, inputs, more)


def _row(kernel: str, rows: int, columns: int, names: str, body: str, inputs: str, more: str = "") -> Row:
    return Row(
        label=f"{kernel} {rows}x{columns}",
        kernel=kernel,
        sizes={"rows": rows, "columns": columns},
        reference=TORCH,
        names=names,
        body=body,
        inputs=inputs,
        call=f"{kernel}({names}{more})",
    )
