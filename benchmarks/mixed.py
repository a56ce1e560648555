"""A queue's worth of candidates of every kind, dealt in fixed order, each with the end it deserves.

`deal(100, "cuda")` gives the same hundred sources every time: right ones in torch, Triton and bare CUDA,
wrong ones, ones that do not build, that crash, that are right but slow. No two are equal. Sources that are
one line of torch stand here, kernels in mixed_kernels.py.

Not covered: cheats and hostile candidates; tests/exploits and tests/hostile have those.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from string import Template

import mixed_kernels as kernels

from assay.candidates import Candidate, candidate_from_source

ARGUMENTS = {
    "add_tiny": "a, b",
    "gelu": "x",
    "swiglu": "gate, up",
    "softmax_rows": "x",
    "row_sum": "x",
    "residual_rms_norm": "x, residual, weight",
    "cross_entropy": "logits, labels",
    "matmul_bf16": "a, b",
}
"""The ladder problems there are templates for, with what forward() takes."""

WEIGHTS = {
    "torch": 18,
    "triton": 24,
    "native": 18,
    "wrong": 15,
    "broken": 10,
    "crashing": 7,
    "slow": 8,
}
"""Of a hundred candidates. "native" is bare CUDA, or C++ on a CPU; "broken" does not build."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """One way to write a candidate for one problem."""

    problem: str
    kind: str
    source: str
    """With $NAME where a variant puts its value."""
    expected: str = "passed"
    suffix: str = ".py"
    where: str = "any"
    """"any", "cuda" or "cpu"."""
    variants: tuple[dict[str, int], ...] = ({},)


@dataclass(frozen=True, slots=True)
class Mixed:
    """One candidate of the queue."""

    problem: str
    kind: str
    expected: str
    candidate: Candidate


TORCH_HEAD = "import torch\nfrom torch.nn import functional as F\n\n\n"
RIGHT = (
    ("add_tiny", "torch.add(a, b)"),
    ("gelu", "F.gelu(x)"),
    ("swiglu", "F.silu(gate) * up"),
    ("softmax_rows", "F.softmax(x, -1)"),
    ("row_sum", "torch.sum(x, -1)"),
    ("residual_rms_norm", "F.rms_norm(x + residual, weight.shape, weight, 1e-5), x + residual"),
    ("cross_entropy", "F.cross_entropy(logits, labels, reduction='none')"),
    ("matmul_bf16", "torch.mm(a, b)"),
    ("gelu", "(0.5 * x.float() * (1 + torch.erf(x.float() * 0.5**0.5))).to(x.dtype)"),
    ("swiglu", "(gate.float() * torch.sigmoid(gate.float()) * up.float()).to(up.dtype)"),
    ("softmax_rows", "torch.exp(torch.log_softmax(x, -1))"),
    ("row_sum", "torch.einsum('rc->r', x)"),
    (
        "cross_entropy",
        "torch.logsumexp(logits, -1) - logits.gather(1, labels[:, None])[:, 0]",
    ),
    ("matmul_bf16", "F.linear(a, b.t())"),
)
WRONG = (
    ("gelu", "F.silu(x)"),
    ("softmax_rows", "torch.exp(x) / torch.exp(x[..., :-1]).sum(-1, keepdim=True)"),
    ("swiglu", "F.silu(up) * gate"),
    ("row_sum", "x.to(torch.bfloat16).sum(-1).float()"),
    ("residual_rms_norm", "F.rms_norm(x + residual, weight.shape, None, 1e-5), x + residual"),
    ("cross_entropy", "torch.logsumexp(logits, -1) - logits.mean(-1)"),
    ("matmul_bf16", "a.abs() @ b"),
    ("add_tiny", "a - b"),
)
SLOW = (
    ("gelu", "torch.cat([F.gelu(part.double()).to(x.dtype) for part in x.split(64)])"),
    ("softmax_rows", "torch.cat([torch.softmax(part.double(), -1).float() for part in x.split(32)])"),
    ("row_sum", "sum(part.double().sum(-1) for part in x.split(64, -1)).float()"),
    (
        "swiglu",
        "torch.cat([(F.silu(g.double()) * u).to(up.dtype) for g, u in zip(gate.split(64), up.split(64))])",
    ),
    ("matmul_bf16", "(a.double() @ b.double()).to(a.dtype)"),
)
CRASHING = (
    ("gelu", "import os\n\n\ndef forward(x):\n    os.abort()\n"),
    ("softmax_rows", "def forward(x):\n    raise RuntimeError('no kernel for this device')\n"),
    ("row_sum", "import sys\n\n\ndef forward(x):\n    sys.exit(3)\n"),
    ("add_tiny", "def forward(a, b):\n    return a @ b\n"),
)
BROKEN = (
    ("softmax_rows", "import torch\n\n\ndef forward(x:\n    return torch.softmax(x, -1)\n"),
    ("gelu", "import a_package_that_is_not_there\n\n\ndef forward(x):\n    return x\n"),
    (
        "row_sum",
        "import torch\n\n\nclass ModelNew(torch.nn.Module):\n    def __init__(self, width):\n"
        "        super().__init__()\n\n    def forward(self, x):\n        return x.sum(-1)\n",
    ),
)


def _one_line(problem: str, kind: str, expression: str, expected: str = "passed") -> Recipe:
    source = f"{TORCH_HEAD}def forward({ARGUMENTS[problem]}):\n    return {expression}\n"
    return Recipe(problem, kind, source, expected)


def _recipes() -> list[Recipe]:
    blocks = tuple({"BLOCK": b, "WARPS": w} for b, w in ((1024, 4), (2048, 8), (4096, 8), (512, 2)))
    warps = tuple({"WARPS": w} for w in (4, 8, 16, 2))
    threads = tuple({"THREADS": t} for t in (256, 512, 1024, 128))
    tiles = tuple(
        {"M": m, "N": n, "K": k, "WARPS": w} for m, n, k, w in ((128, 128, 64, 8), (64, 128, 64, 4))
    )
    found = [_one_line(problem, "torch", text) for problem, text in RIGHT]
    for problem, source in kernels.TRITON.items():
        variants = tiles if problem == "matmul_bf16" else blocks if "$BLOCK" in source else warps
        # Triton's interpreter takes the bits of a bfloat16 for integers in tl.dot.
        where = "cuda" if problem == "matmul_bf16" else "any"
        found.append(Recipe(problem, "triton", source, where=where, variants=variants))
    for problem, source in kernels.CUDA.items():
        found.append(Recipe(problem, "native", source, suffix=".cu", where="cuda", variants=threads))
    for problem, source in kernels.CPP.items():
        found.append(Recipe(problem, "native", source, suffix=".cpp", where="cpu"))
    found += [_one_line(problem, "wrong", text, "wrong") for problem, text in WRONG]
    found += [_one_line(problem, "slow", text) for problem, text in SLOW]
    found += [Recipe(problem, "crashing", text, "crashed") for problem, text in CRASHING]
    found += [Recipe(problem, "broken", text, "build_failed") for problem, text in BROKEN]
    for problem, suffix, source in kernels.BROKEN:
        where = {".cpp": "cpu"}.get(suffix, "cuda")
        found.append(Recipe(problem, "broken", source, "build_failed", suffix, where))
    for problem, source in kernels.CRASHING.items():
        found.append(Recipe(problem, "crashing", source, "crashed", ".cu", "cuda"))
    return found


def deal(count: int, device_type: str, problems: Sequence[str] = tuple(ARGUMENTS)) -> list[Mixed]:
    """`count` different candidates that run on the device, kinds mixed by their weights from the start."""
    fitting = [r for r in _recipes() if r.problem in problems and r.where in ("any", device_type)]
    by_kind = {kind: [r for r in fitting if r.kind == kind] for kind in WEIGHTS}
    kinds = [kind for kind in WEIGHTS if by_kind[kind]]
    total = sum(WEIGHTS[kind] for kind in kinds)
    dealt = dict.fromkeys(kinds, 0)
    queue: list[Mixed] = []
    for number in range(count):
        # The kind that lags most behind its share comes next.
        kind = max(kinds, key=lambda k: WEIGHTS[k] * (number + 1) / total - dealt[k])
        recipes = by_kind[kind]
        turn, place = divmod(dealt[kind], len(recipes))
        queue.append(_make(recipes[place], turn, f"{number:03}"))
        dealt[kind] += 1
    return queue


def first_of(problem: str) -> Mixed:
    """A right candidate apart from the queue: its verdict makes the judge ready for the problem."""
    text = next(text for name, text in RIGHT if name == problem)
    return _make(_one_line(problem, "torch", text), 0, "first")


def _make(recipe: Recipe, turn: int, label: str) -> Mixed:
    variant = recipe.variants[turn % len(recipe.variants)]
    mark = "#" if recipe.suffix == ".py" else "//"
    text = f"{Template(recipe.source).substitute(variant)}{mark} candidate {label}\n"
    name = f"{label}_{recipe.problem}_{recipe.kind}{recipe.suffix}"
    return Mixed(
        recipe.problem, recipe.kind, recipe.expected, candidate_from_source(text, name, recipe.suffix)
    )
