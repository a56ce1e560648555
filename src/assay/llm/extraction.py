"""The kernel in an answer. Answers are texts of strangers: whatever they hold, this returns something."""

from __future__ import annotations

import re
from dataclasses import dataclass

# Possessive throughout: an answer may be a megabyte of anything, and must not be read again and again.
_FENCE = re.compile(r"^[ \t]*+(`{3,}+|~{3,}+)[ \t]*+([\w+#.-]*+)[^\n`]*+$", re.MULTILINE)
_ENTRY = re.compile(
    r"^(?:class\s+ModelNew|def\s+(?:forward|custom_kernel)|custom_kernel\s*=)\b|^[^\S\n]*+//\s*assay:|PYBIND11_MODULE",
    re.MULTILINE,
)
_SUFFIXES = {
    ".py": ("py", "python", "python3", "triton"),
    ".cu": ("cu", "cuda", "cuda-cpp", "cuda-c++"),
    ".cpp": ("cpp", "c++", "cc", "cxx"),
}
_CUDA = re.compile(r"__global__|cuda_runtime|<<<")
_PYTHON = re.compile(r"^[^\S\n]*+(?:import|from|def|class)\s", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Extracted:
    """A source, and the suffix of the file it belongs in."""

    source: str
    suffix: str


def extract(text: str) -> Extracted:
    """The last fenced block that defines an entry; else the longest block; else all of the text."""
    blocks = _blocks(text)
    with_entry = [block for block in blocks if _ENTRY.search(block[1])]
    if with_entry:
        tag, source = with_entry[-1]
    elif blocks:
        tag, source = max(blocks, key=lambda block: len(block[1]))
    else:
        tag, source = "", text
    return Extracted(source.strip("\n") + "\n", _suffix(tag, source))


def _blocks(text: str) -> list[tuple[str, str]]:
    """Tag and content of each; one that is never closed, by a limit on tokens say, ends with the text."""
    found = []
    opened: re.Match[str] | None = None
    for fence in _FENCE.finditer(text):
        if opened is None:
            opened = fence
        elif fence[1].startswith(opened[1]) and not fence[2]:
            found.append((opened[2].lower(), text[opened.end() : fence.start()]))
            opened = None
    if opened is not None:
        found.append((opened[2].lower(), text[opened.end() :]))
    return found


def _suffix(tag: str, source: str) -> str:
    """What the source looks like counts where the tag says nothing."""
    for suffix, tags in _SUFFIXES.items():
        if tag in tags:
            return ".cu" if suffix == ".cpp" and _CUDA.search(source) else suffix
    if _PYTHON.search(source):
        return ".py"
    if _CUDA.search(source):
        return ".cu"
    return ".cpp" if "#include" in source else ".py"
