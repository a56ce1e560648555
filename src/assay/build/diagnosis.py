"""Turns a compiler's output or a Python traceback into a few lines: what, where, and what to do.

The reader is a person or a language model with little room: one summary line, the offending source line, one
hint, at most 12 lines in all. The first error counts; the rest usually follows from it.

Not covered: warnings, register spills (facts, not errors), and errors while a kernel runs.
"""

from __future__ import annotations

import re
import traceback
from dataclasses import dataclass

from assay.build.hints import COMPILER_HINTS, PYTHON_HINTS, first_hint, missing_attribute

TOOLS = ("g++", "nvcc", "nvrtc", "ptxas", "python", "triton", "ninja")
MAX_LINE_CHARACTERS = 300
_QUOTES = {0x2018: "'", 0x2019: "'"}  # g++ curls its quotes in UTF-8 locales
_OWN_FILE = r"(?:[^\s:(]*/)?(?:candidate|main|cuda|sycl)\.(?:cu|cpp|cc|py)"

# g++: file:line:col: error: text          nvcc, nvrtc: file(line): error: text
_GNU = re.compile(
    r"^(?P<file>[^\s:(][^:(\n]*):(?P<line>\d+):(?:\d+:)? (?:fatal )?error: (?P<text>.*)$", re.MULTILINE
)
_EDG = re.compile(
    r"^(?P<file>[^\s:(][^(\n]*)\((?P<line>\d+)\): (?:catastrophic )?error(?: #[\w-]+)?: (?P<text>.*)$",
    re.MULTILINE,
)
_PTXAS = re.compile(r"^ptxas\b[^\n]*?(?:error|fatal)\s*: (?P<text>.*)$", re.MULTILINE)
_LINKER = re.compile(r"^.*(?:undefined reference to|undefined symbol|cannot find -l).*$", re.MULTILINE)
_ATTRIBUTE = re.compile(r"module '(?P<module>[\w.]+)' has no attribute '(?P<name>\w+)'")
_IMPORT_NAME = re.compile(r"cannot import name '(?P<name>\w+)' from '(?P<module>[\w.]+)'")
_TRITON_AT = re.compile(
    r"(?:CompilationError|CompileTimeAssertionFailure|UnsupportedLanguageConstruct)?: at \d+:\d+:\n"
)
_FRAME = re.compile(r'^\s*File "(?P<file>[^"]+)", line (?P<line>\d+)', re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """One error, ready to be shown."""

    summary: str
    line: int | None
    """Line in the candidate's source, where it could be found."""
    excerpt: str
    """That source line."""
    hint: str

    def render(self) -> str:
        lines = [self.summary]
        if self.excerpt:
            lines.append(
                f"  line {self.line}: {self.excerpt}" if self.line is not None else f"  {self.excerpt}"
            )
        elif self.line is not None:
            lines.append(f"  line {self.line}")
        if self.hint:
            lines.append(f"  hint: {self.hint}")
        return "\n".join(lines)


def diagnose(tool: str, text: str, source: str) -> Diagnosis:
    """The first error in `text`, which `tool` (one of TOOLS) printed about `source`."""
    text = text.translate(_QUOTES)
    if tool in ("python", "triton"):
        # load_inline reports the compiler's output inside a Python exception.
        if "Error building extension" in text and _first_compiler_error(text) is not None:
            return _from_compiler(text, source, is_embedded=True)
        if _TRITON_AT.search(text):
            return _from_triton(text, source)
        return _from_python(text, source)
    return _from_compiler(text, source, is_embedded=tool == "ninja")


def diagnose_exception(error: BaseException, source: str) -> Diagnosis:
    """The same for an exception raised while a candidate was imported, constructed or called."""
    return diagnose("python", "".join(traceback.format_exception(error)), source)


def has_compile_error(text: str) -> bool:
    """Whether a compiler found anything wrong with a source file, rather than with its command."""
    return _first_compiler_error(text) is not None


def _first_compiler_error(text: str) -> re.Match[str] | None:
    found = [m for m in (_GNU.search(text), _EDG.search(text)) if m]
    return min(found, key=lambda m: m.start(), default=None)


def _from_compiler(text: str, source: str, *, is_embedded: bool) -> Diagnosis:
    match = _first_compiler_error(text)
    if match is None:
        return _from_assembler(text)
    message = match["text"]
    shown = _quoted_line(text[match.end() :])
    line: int | None = None
    if is_embedded:
        # The compiler counts in a file made out of a string in the candidate: find the text, not the number.
        line = _line_of(shown, source)
    elif re.fullmatch(_OWN_FILE, match["file"]):
        line = int(match["line"])
    else:
        # Inside a header; the place in the candidate that led there, if the compiler names it.
        message = f"{match['file'].rsplit('/', 1)[-1]}:{match['line']}: {message}"
        led_there = re.search(rf"{_OWN_FILE}[:(](\d+)|at line (\d+) of {_OWN_FILE}", text)
        line = int(led_there[1] or led_there[2]) if led_there else None
    excerpt = _source_line(source, line) or shown
    hint = first_hint(message, COMPILER_HINTS)
    suggestion = re.search(r"did you mean [\"'](\w+)", message)
    if suggestion:
        hint = f"did you mean {suggestion[1]}"
    return Diagnosis(_one_line(f"compile error: {message}"), line, _one_line(excerpt), hint)


def _from_assembler(text: str) -> Diagnosis:
    match = _PTXAS.search(text)
    if match:
        return Diagnosis(
            _one_line(f"ptxas: {match['text']}"), None, "", first_hint(match["text"], COMPILER_HINTS)
        )
    match = _LINKER.search(text)
    if match:
        return Diagnosis(
            _one_line(f"link error: {match.group()}"), None, "", first_hint(match.group(), COMPILER_HINTS)
        )
    lines = [line for line in text.splitlines() if line.strip()]
    telling = next((line for line in lines if re.search(r"\berror\b|\bfatal\b", line, re.IGNORECASE)), None)
    last = telling or (lines[-1] if lines else "the compiler failed and said nothing")
    return Diagnosis(_one_line(f"compile error: {last}"), None, "", first_hint(last, COMPILER_HINTS))


def _quoted_line(after: str) -> str:
    """The source line a compiler prints below its message: g++ as `  3 |  code`, nvcc as the bare line."""
    first = after.lstrip("\n").split("\n", 1)[0]
    numbered = re.match(r"\s*\d+ \| ?(.*)$", first)
    return (numbered[1] if numbered else first).strip()


def _from_triton(text: str, source: str) -> Diagnosis:
    innermost = list(_TRITON_AT.finditer(text))[-1]  # kernels that call kernels: the last one is where it is
    body = text[innermost.end() :].splitlines()
    caret = next((i for i, line in enumerate(body) if line.strip() and set(line.strip()) == {"^"}), None)
    excerpt = body[caret - 1].strip() if caret else ""
    told = [line for line in body[(caret or 0) + 1 :] if line.strip()]
    message = told[0].strip() if told else "compilation failed"
    wrapped = re.fullmatch(r"""\w+\((["'])(.*)\1\)""", message)
    message = wrapped[2] if wrapped else message
    line = _line_of(excerpt, source)
    attribute = _ATTRIBUTE.search(message)
    if attribute:
        summary, hint = missing_attribute(attribute["module"], attribute["name"])
    else:
        summary, hint = f"triton: {message}", first_hint(message, PYTHON_HINTS)
    return Diagnosis(_one_line(summary), line, _one_line(excerpt), hint)


def _from_python(text: str, source: str) -> Diagnosis:
    lines = [line for line in text.splitlines() if line.strip()]
    # The last line at the margin that reads `Kind: message` closes the traceback; messages may go on below.
    closing = [
        line
        for line in lines
        if re.match(r"[A-Za-z_][\w.]*(?::|$)", line) and not line.startswith("Traceback")
    ]
    message = closing[-1] if closing else (lines[-1] if lines else "the candidate failed and said nothing")
    message = re.sub(r"^(?:[\w]+\.)+(?=\w+:)", "", message)
    frames = [m for m in _FRAME.finditer(text) if re.fullmatch(_OWN_FILE, m["file"])]
    line = int(frames[-1]["line"]) if frames else None
    attribute = _ATTRIBUTE.search(message)
    import_name = _IMPORT_NAME.search(message)
    if attribute:
        summary, hint = missing_attribute(attribute["module"], attribute["name"])
    elif import_name and import_name["module"].split(".")[0] in ("torch", "triton"):
        summary, hint = missing_attribute(import_name["module"], import_name["name"])
    else:
        summary, hint = message, first_hint(message, PYTHON_HINTS)
    return Diagnosis(_one_line(summary), line, _one_line(_source_line(source, line)), hint)


def _line_of(excerpt: str, source: str) -> int | None:
    """The one line of the source that reads like this; None if there is none or more than one."""
    if not excerpt:
        return None
    found = [number for number, line in enumerate(source.splitlines(), 1) if line.strip() == excerpt]
    return found[0] if len(found) == 1 else None


def _source_line(source: str, line: int | None) -> str:
    lines = source.splitlines()
    return lines[line - 1].strip() if line is not None and 1 <= line <= len(lines) else ""


def _one_line(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= MAX_LINE_CHARACTERS else text[: MAX_LINE_CHARACTERS - 3] + "..."
