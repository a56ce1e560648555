"""How lifted kernels are launched: block sizes where nobody tuned them, grids, and the text of the launch.

The block sizes follow inductor's first guess for each kind of kernel, in round numbers. A capture on a GPU
knows the tuned ones and these are then not used.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping

from assay.lift.record import CannotLift, Kernel, Launch, Lifted, Line
from assay.lift.triton_library import library_text, needed
from assay.lift.triton_syntax import expression, text_of

LAUNCH_OPTIONS = ("num_warps", "num_stages", "maxnreg", "num_ctas")
"""Knobs that Triton takes at the launch; every other knob is a constant of the kernel."""
MOST_PROGRAMS = (2**31 - 1, 65535, 65535)
"""On each axis of a grid: a limit of CUDA."""
POINTWISE_TILES = {1: (1024,), 2: (32, 32), 3: (16, 16, 16)}
IMPORTS = ("import triton", "import triton.language as tl")
OPERATORS = "from assay.tiles import operators"
LIBDEVICE = "from triton.language.extra import libdevice"


def first_knobs(kind: str, sizes: Mapping[str, int], facts: Mapping[str, str]) -> dict[str, int]:
    """Block sizes and warps to begin with. `sizes` are numbers of elements by axis: x, y, z, r0_, r1_."""
    if facts.get("dot"):
        return _product_knobs(sizes, facts)
    if kind == "pointwise":
        return _pointwise_knobs(sizes)
    if kind == "reduction":
        return _reduction_knobs(sizes, facts.get("reduction", ""))
    if kind == "persistent_reduction":
        return _persistent_knobs(sizes, facts.get("reduction", ""))
    raise CannotLift(f"a {kind} kernel has no block sizes until a GPU has tuned it")


def power_of_2(number: int) -> int:
    """The least power of two that is not below."""
    return 1 << max(number - 1, 0).bit_length()


def _within(number: int, low: int, high: int) -> int:
    return max(low, min(number, high))


def _pointwise_knobs(sizes: Mapping[str, int]) -> dict[str, int]:
    axes = [axis for axis in "xyz" if axis in sizes]
    tile = POINTWISE_TILES[len(axes)]
    if len(axes) == 1:
        tile = (_within(power_of_2(sizes["x"] // 128), 256, 1024),)
    knobs = {
        axis.upper() + "BLOCK": min(t, power_of_2(sizes[axis])) for axis, t in zip(axes, tile, strict=True)
    }
    elements = 1
    for size in knobs.values():
        elements *= size
    return knobs | {"num_warps": 4 if elements >= 128 else 1, "num_stages": 1}


def _reduction_knobs(sizes: Mapping[str, int], hint: str) -> dict[str, int]:
    """Along rows: few rows and 2048 elements of them. Across rows: 64 columns and 8 rows."""
    if set(sizes) - {"x", "r0_"}:
        return _tiled_reduction_knobs(sizes)
    x, r = sizes["x"], sizes["r0_"]
    if hint == "OUTER":
        xblock, rblock = min(64, power_of_2(x)), min(8, power_of_2(r))
        return {"XBLOCK": xblock, "R0_BLOCK": rblock, "num_warps": 4, "num_stages": 1}
    rblock = min(2048, power_of_2(r))
    xblock = min(2 if r <= 2048 else 1, power_of_2(x))
    warps = _within(rblock // 128, 2, 16)
    return {"XBLOCK": xblock, "R0_BLOCK": rblock, "num_warps": warps, "num_stages": 1}


def _tiled_reduction_knobs(sizes: Mapping[str, int]) -> dict[str, int]:
    """More than two axes: 2048 elements, shared out from the last axis on."""
    knobs: dict[str, int] = {}
    left = 2048
    for axis in sorted(sizes, reverse=True, key=lambda name: (not name.startswith("r"), name)):
        knobs[axis.upper() + "BLOCK"] = size = min(left, 64, power_of_2(sizes[axis]))
        left //= size
    return knobs | {"num_warps": 8, "num_stages": 1}


def _persistent_knobs(sizes: Mapping[str, int], hint: str) -> dict[str, int]:
    """Whole rows at once: about 1024 elements for each program, a row at least; short rows by one warp."""
    r = power_of_2(sizes["r0_"]) * power_of_2(sizes.get("r1_", 1))
    rows = _within(1024 // r, 1, 8 if hint == "INNER" else 128)
    xblock = min(rows, power_of_2(sizes["x"]))
    knobs = {"XBLOCK": xblock} | ({"YBLOCK": 1} if "y" in sizes else {})
    by_one_warp = hint == "INNER" and 256 <= r <= 1024 and sizes["x"] >= 1024
    warps = 1 if by_one_warp else _within(xblock * r // 128, 2, _within(xblock * r // 1024, 8, 32))
    return knobs | {"num_warps": warps, "num_stages": 1}


def _product_knobs(sizes: Mapping[str, int], facts: Mapping[str, str]) -> dict[str, int]:
    """A product of matrices: tiles of 128 by 128 for tensor cores, of 64 by 64 for exact float32."""
    is_exact = facts["dot"] == "full"
    side, depth = (64, 32) if is_exact else (128, 64)
    knobs = {"ZBLOCK": 1} if "z" in sizes else {}
    knobs |= {
        f"{axis.upper()}BLOCK": _within(power_of_2(sizes[axis]), 16, side) for axis in "yx" if axis in sizes
    }
    knobs["R0_BLOCK"] = _within(power_of_2(sizes["r0_"]), 16, depth)
    return knobs | {"num_warps": 4 if is_exact else 8, "num_stages": 3}


def grid_of(grid_type: str, sizes: Mapping[str, str], knobs: Mapping[str, int]) -> tuple[str, ...]:
    """An expression for each axis, over knobs; `sizes` are numbers or names of arguments, by axis."""

    def count(axis: str) -> str:
        block = axis.upper() + "BLOCK"
        return f"triton.cdiv({sizes[axis]}, {block})" if block in knobs else sizes[axis]

    if grid_type in ("Grid1D", "Grid2D", "Grid3D"):
        return tuple(count(axis) for axis in "xyz"[: int(grid_type[4])])
    if grid_type == "Grid2DWithYZOverflow":
        layers = f"triton.cdiv({count('y')}, {MOST_PROGRAMS[1]})"
        return count("x"), f"triton.cdiv({count('y')}, {layers})", layers
    if grid_type == "BatchMatmulGrid3D":
        return count("z"), count("y"), count("x")
    raise CannotLift(f"launch grids of inductor's type {grid_type}")


def evaluated(text: str, knobs: Mapping[str, int]) -> int | None:
    """The value of a grid expression; None where it depends on an argument."""
    return _value(expression(text), knobs)


def _value(node: ast.expr, knobs: Mapping[str, int]) -> int | None:
    if isinstance(node, ast.Constant):
        return int(node.value) if isinstance(node.value, int) else None
    if isinstance(node, ast.Name):
        return knobs.get(node.id)
    parts = node.args if isinstance(node, ast.Call) else []
    if isinstance(node, ast.BinOp):
        parts = [node.left, node.right]
    known = [value for part in parts if (value := _value(part, knobs)) is not None]
    if not parts or len(known) < len(parts):
        return None
    return _computed(node, known)


def _computed(node: ast.expr, values: list[int]) -> int | None:
    if isinstance(node, ast.Call):
        name = text_of(node.func)
        if name == "triton.cdiv":
            return -(-values[0] // values[1])
        return {"min": min, "max": max}[name](values) if name in ("min", "max") else None
    match node:
        case ast.BinOp(op=ast.Add()):
            return values[0] + values[1]
        case ast.BinOp(op=ast.Sub()):
            return values[0] - values[1]
        case ast.BinOp(op=ast.Mult()):
            return values[0] * values[1]
        case ast.BinOp(op=ast.FloorDiv()):
            return values[0] // values[1]
    return None


def check_grid(kernel: Kernel) -> None:
    """Refuses more programs on an axis than CUDA launches."""
    for axis, (text, most) in enumerate(zip(kernel.grid, MOST_PROGRAMS, strict=False)):
        programs = evaluated(text, kernel.knobs)
        if programs is not None and not 1 <= programs <= most:
            raise CannotLift(
                f"{kernel.name}: {programs} programs on axis {axis} of the grid, of at most {most}"
            )


def launch_line(kernel: Kernel, launch: Launch) -> str:
    """One line of Python: `kernel[(grid)](arguments, constants)`."""
    if len(launch.arguments) != len(kernel.parameters):
        raise CannotLift(
            f"{kernel.name}: {len(launch.arguments)} arguments for {len(kernel.parameters)} parameters"
        )
    check_grid(kernel)
    by_name = dict(zip(kernel.parameters, launch.arguments, strict=True))
    axes = [_axis_text(text, kernel.knobs, by_name) for text in kernel.grid]
    keywords = [f"{name}={value}" for name, value in kernel.knobs.items() if not _is_left_out(name, value)]
    return f"{kernel.name}[({', '.join(axes)},)]({', '.join((*launch.arguments, *keywords))})"


def _is_left_out(name: str, value: int) -> bool:
    return name == "PROGRAMS" or (name == "maxnreg" and value == 0)


def _axis_text(text: str, knobs: Mapping[str, int], arguments: Mapping[str, str]) -> str:
    programs = evaluated(text, knobs)
    if programs is not None:
        return str(programs)

    class Known(ast.NodeTransformer):
        def visit_Name(self, node: ast.Name) -> ast.expr:
            return expression(str(knobs.get(node.id, arguments.get(node.id, node.id))))

    return text_of(Known().visit(expression(text)))


def used_kernels(lifted: Lifted) -> list[Kernel]:
    """Those that are launched, in order."""
    launched = {step.kernel for step in lifted.steps if isinstance(step, Launch)}
    return [kernel for kernel in lifted.kernels if kernel.name in launched]


def triton_source(lifted: Lifted) -> str:
    """The kernels, behind the functions they call."""
    texts = [kernel.text for kernel in used_kernels(lifted)]
    library = [library_text(name) for name in needed(texts)]
    return "\n\n\n".join(text.strip() for text in (*library, *texts)) + "\n"


def triton_imports(lifted: Lifted) -> tuple[str, ...]:
    """Lines of Python that the kernels need."""
    device = (LIBDEVICE,) if "libdevice." in triton_source(lifted) else ()
    calls_tiles = any(isinstance(step, Line) and "operators." in step.text for step in lifted.steps)
    return *IMPORTS, *device, *((OPERATORS,) if calls_tiles else ())


def call_of(launch: Launch, lifted: Lifted) -> str:
    """The line of Python that carries out a launch."""
    return launch_line(next(kernel for kernel in lifted.kernels if kernel.name == launch.kernel), launch)


def print_triton(lifted: Lifted) -> tuple[str, tuple[str, ...]]:
    """The kernels and their imports as the text of a module, and a line of Python for each launch in turn."""
    lines = tuple(call_of(step, lifted) for step in lifted.steps if isinstance(step, Launch))
    return "\n".join(triton_imports(lifted)) + "\n\n\n" + triton_source(lifted), lines
