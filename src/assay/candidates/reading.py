"""Reads a candidate from a file or a string, and decides its language and entry without running it.

A Python file that does not parse still reads: a syntax error is the candidate's failure and becomes a
verdict later, not the reader's. What cannot become a verdict (no file, no entry) is a UserError.

Not covered: whether the source compiles, and whether its launch directives make sense (`launch.py`,
called when the entry is loaded).
"""

from __future__ import annotations

import ast
import hashlib
import re
import warnings
from pathlib import Path

from assay.candidates.candidate import Candidate
from assay.candidates.launch import has_directives
from assay.records.errors import UserError

MAX_SOURCE_BYTES = 1_000_000
PYTHON_ENTRIES = ("ModelNew", "custom_kernel", "forward")
SUFFIXES = {
    ".py": ".py",
    ".cu": ".cu",
    ".cuh": ".cu",
    ".cpp": ".cpp",
    ".cc": ".cpp",
    ".cxx": ".cpp",
}

_TORCH_HEADER = re.compile(r'^[ \t]*#[ \t]*include[ \t]*[<"](?:torch|ATen|c10|pybind11)/', re.MULTILINE)
_IMPORTED_MODULE = re.compile(r"^[ \t]*(?:import|from)[ \t]+([\w.]+)", re.MULTILINE)


def read_candidate(path: str | Path) -> Candidate:
    """The candidate in a file; everything wrong with the file itself is a one-line UserError."""
    path = Path(path)
    if path.is_dir():
        raise UserError(f"{path} is a folder: name the candidate's source file (.py, .cu or .cpp)")
    if not path.exists():
        raise UserError(f"{path} does not exist: check the path of the candidate")
    if not path.is_file():
        raise UserError(f"{path} is not a regular file: save the candidate to a file first")
    _plain_suffix(path.suffix, str(path))
    try:
        with path.open("rb") as stream:
            data = stream.read(MAX_SOURCE_BYTES + 1)
    except OSError as error:
        raise UserError(f"{path} cannot be read ({error.strerror}): check its permissions") from error
    _check_size(len(data), str(path))
    try:
        # utf-8-sig: editors on Windows write a byte order mark, which Python's parser refuses in a str.
        source = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UserError(f"{path} is not UTF-8 (byte {error.start}): save it as UTF-8") from error
    return candidate_from_source(source, path.stem, path.suffix)


def candidate_from_source(source: str, name: str, suffix: str) -> Candidate:
    """The candidate in a string; `suffix` is that of the file it would be saved in."""
    plain = _plain_suffix(suffix, name)
    try:
        data = source.encode("utf-8")
    except UnicodeEncodeError as error:
        raise UserError(f"{name} holds text that UTF-8 cannot write (character {error.start})") from error
    _check_size(len(data), name)
    if not source.strip():
        raise UserError(f"{name} is empty: write the candidate's source into it")
    if plain == ".py":
        language, entry = _read_python(source, name)
    else:
        language, entry = ("cuda" if plain == ".cu" else "cpp"), _read_native(source, name, plain)
    digest = hashlib.sha256(data).hexdigest()
    return Candidate(name=name, source=source, suffix=plain, language=language, entry=entry, digest=digest)


def _check_size(size_bytes: int, name: str) -> None:
    if size_bytes > MAX_SOURCE_BYTES:
        raise UserError(
            f"{name} is larger than {MAX_SOURCE_BYTES // 1_000_000} MB: a candidate is one source file"
        )


def _plain_suffix(suffix: str, name: str) -> str:
    plain = SUFFIXES.get(suffix.lower())
    if plain is None:
        shown = f"the suffix {suffix!r}" if suffix else "no suffix"
        raise UserError(f"{name} has {shown}: candidates are {', '.join(SUFFIXES)} files")
    return plain


def _read_native(source: str, name: str, suffix: str) -> str:
    if _TORCH_HEADER.search(source):
        return "extension"
    if has_directives(source):
        return "launch"
    example = "launch kernel<<<grid, block>>>(x, y)" if suffix == ".cu" else "call function(x, y)"
    raise UserError(
        f"{name} says neither how to launch it nor includes torch headers: add comment lines such as "
        f'"// assay: out y = torch.empty_like(x)", "// assay: {example}", "// assay: return y"'
    )


def _read_python(source: str, name: str) -> tuple[str, str]:
    tree = _parse(source)
    if tree is None:
        modules = set(_IMPORTED_MODULE.findall(source))
        entry = next((e for e in PYTHON_ENTRIES if _defined_in_text(source, e)), None)
    else:
        modules = _imported_modules(tree)
        defined = _top_level_names(tree.body)
        entry = next((e for e in PYTHON_ENTRIES if e in defined), None)
    if entry is None:
        raise UserError(
            f"{name} defines no entry: define class ModelNew, or a function custom_kernel or forward"
        )
    return _python_language(modules, source, tree), entry


def _parse(source: str) -> ast.Module | None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # invalid escapes in the candidate's strings are not our output
            return ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _defined_in_text(source: str, entry: str) -> bool:
    return re.search(rf"^(?:class|def|async def)[ \t]+{entry}\b", source, re.MULTILINE) is not None


def _top_level_names(body: list[ast.stmt]) -> set[str]:
    names: set[str] = set()
    for node in body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            names.add(node.name)
        elif isinstance(node, ast.Assign):
            names.update(n.id for t in node.targets for n in ast.walk(t) if isinstance(n, ast.Name))
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value is not None:
            names.add(node.target.id)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names.update(alias.asname or alias.name for alias in node.names)
        elif isinstance(node, ast.If | ast.Try | ast.With):
            # A guard around the definition (try: import triton) does not hide it.
            names |= _top_level_names(node.body) | _top_level_names(getattr(node, "orelse", []))
    return names


def _imported_modules(tree: ast.Module) -> set[str]:
    modules: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            modules.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            modules.add(node.module)
            modules.update(f"{node.module}.{alias.name}" for alias in node.names)
    return modules


def _python_language(modules: set[str], source: str, tree: ast.Module | None) -> str:
    if any(m.startswith("triton.experimental.gluon") for m in modules):
        return "gluon"
    if any(m == "triton" or m.startswith("triton.") for m in modules):
        return "triton"
    if "__global__" in source:
        return "cuda"  # also covers torch.cuda._compile_kernel and the like
    if "cpp_extension" in source and ("load" in source or "Extension" in source):
        return "cuda" if _has_cuda_sources(tree, source) else "cpp"
    return "torch"


def _has_cuda_sources(tree: ast.Module | None, source: str) -> bool:
    if tree is None:
        return "cuda_sources" in source or "CUDAExtension" in source
    for node in ast.walk(tree):
        if isinstance(node, ast.keyword) and node.arg == "cuda_sources" and not _is_empty(node.value):
            return True
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.endswith(".cu"):
            return True
        if isinstance(node, ast.Name) and node.id == "CUDAExtension":
            return True
    return False


def _is_empty(node: ast.expr) -> bool:
    if isinstance(node, ast.Constant):
        return not node.value
    return isinstance(node, ast.List | ast.Tuple) and all(_is_empty(e) for e in node.elts)
