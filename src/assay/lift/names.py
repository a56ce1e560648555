"""Names in the text of a module: which it binds and reads, and new ones for those that another has taken."""

from __future__ import annotations

import ast
import builtins
import io
import re
import symtable
import tokenize
from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass

BUILTINS = frozenset(vars(builtins))
_BEFORE_A_STATEMENT = (tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT)


@dataclass(frozen=True, slots=True)
class Names:
    """The names of a module, those that its functions share with it among them."""

    read: frozenset[str]
    given: frozenset[str]
    """They are given a value by something else than an import."""
    imported: Mapping[str, frozenset[str]]
    """What each imported name stands for, as dotted paths."""
    has_star: bool
    """It imports names that the text does not tell."""

    @property
    def bound(self) -> frozenset[str]:
        return self.given | self.imported.keys()


def names_of(text: str) -> Names:
    """Of a module's text, or of some statements of one."""
    read, given = set(), set()
    top = symtable.symtable(text, "<text>", "exec")
    for table in _tables(top):
        for symbol in table.get_symbols():
            shared = table is top or symbol.is_global()
            # What a function makes global it may read as well.
            if symbol.is_declared_global() or (
                symbol.is_referenced() and (shared or table.get_type() == "class")
            ):
                read.add(symbol.get_name())
            imported_inside = symbol.is_imported() and table is not top
            if shared and (symbol.is_assigned() or imported_inside):
                given.add(symbol.get_name())
    imported: dict[str, frozenset[str]] = {}
    has_star = False
    for node in _outside_functions(ast.parse(text)):
        if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
            read.add(node.target.id)
        for name, path in _imported(node):
            imported[name] = imported.get(name, frozenset()) | {path}
            has_star = has_star or name == "*"
    imported.pop("*", None)
    return Names(frozenset(read), frozenset(given), imported, has_star)


def _tables(table: symtable.SymbolTable) -> Iterator[symtable.SymbolTable]:
    yield table
    for inner in table.get_children():
        yield from _tables(inner)


def _outside_functions(node: ast.AST) -> Iterator[ast.AST]:
    yield node
    if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
        for child in ast.iter_child_nodes(node):
            yield from _outside_functions(child)


def _imported(node: ast.AST) -> Iterator[tuple[str, str]]:
    if isinstance(node, ast.Import):
        for alias in node.names:
            root = alias.name.split(".")[0]
            yield (alias.asname, alias.name) if alias.asname else (root, root)
    elif isinstance(node, ast.ImportFrom):
        for alias in node.names:
            yield alias.asname or alias.name, f"{'.' * node.level}{node.module or ''}.{alias.name}"


def words(*texts: str) -> set[str]:
    return {word for text in texts for word in re.findall(r"\w+", text)}


def free(name: str, taken: Set[str]) -> str:
    """The name, with as many underscores as it takes."""
    while name in taken:
        name += "_"
    return name


def clashes(mine: Names, theirs: Names) -> frozenset[str]:
    """Names of mine that mean something else to them, or that a star of theirs may take."""
    met = mine.bound & (theirs.bound | theirs.read)
    alike = {
        name
        for name in met - theirs.given - mine.given
        if theirs.imported.get(name) == mine.imported[name] and not theirs.has_star
    }
    return (met - alike) | (mine.imported.keys() if theirs.has_star else set())


def hidden_builtins(mine: Names, theirs: Names) -> set[str]:
    """Functions of Python that mine reads, under names that they give to something else."""
    wanted = BUILTINS & (mine.read - mine.bound)
    return set(wanted if theirs.has_star else wanted & theirs.bound)


def new_names(old: Set[str], taken: Set[str]) -> dict[str, str]:
    """A name for each of them that is not taken."""
    new: dict[str, str] = {}
    for name in sorted(old):
        new[name] = free(name, {*taken, *old, *new.values()})
    return new


def renamed(text: str, new: Mapping[str, str]) -> str:
    """The text with other names, attributes and what is in quotes left as they are."""
    lines = text.split("\n")
    for row, column, old, replacement in reversed(list(_replacements(text, new))):
        line = lines[row - 1]
        lines[row - 1] = line[:column] + replacement + line[column + len(old) :]
    return "\n".join(lines)


def _replacements(text: str, new: Mapping[str, str]) -> Iterator[tuple[int, int, str, str]]:
    everything = tokenize.generate_tokens(io.StringIO(text).readline)
    tokens = [token for token in everything if token.type not in (tokenize.COMMENT, tokenize.NL)]
    path, listed = False, False
    """Whether it is where an import says from where, and where it says what."""
    for k, token in enumerate(tokens[:-1]):
        before, after = tokens[k - 1] if k else None, tokens[k + 1].string
        starts = before is None or before.type in _BEFORE_A_STATEMENT or before.string in (";", ":")
        if token.type == tokenize.NEWLINE or token.string == ";":
            path = listed = False
        elif token.string == "import":
            path, listed = False, True
        elif token.string == "from" and starts:
            path = True
        elif token.type == tokenize.NAME and token.string in new and not path:
            last = "" if before is None else before.string
            if last == "." or (listed and last != "as" and after in (".", "as")):
                continue
            name = new[token.string]
            is_imported = listed and last != "as"
            yield *token.start, token.string, f"{token.string} as {name}" if is_imported else name
