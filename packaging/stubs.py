"""Makes the .pyi of a .pyx, which the build puts beside it for mypy and editors.

A Cython module says what Python sees of it in `# type:` comments, which cost nothing at run time:

    def sync(self, int64_t until):
        # type: (...) -> int                 `...`: the parameters have the types that they are declared with
    def open(folder, repair_log):
        # type: (str | PathLike[str], RepairLog) -> CommitLog
    def put(
        self,
        topic,  # type: str                  a comment for each parameter that needs one, where a line is too short
        bint later=False,
    ):
        # type: (...) -> None
    cdef readonly object loop  # type: asyncio.AbstractEventLoop  # attributes; a second comment is their docstring
    CRC_WAYS = best + 1  # type: int         a constant; a string in the next line is its docstring
    cdef class Sends(Base):  # type: Generic[Sent]
    # type: Queue = tuple[str, int]          a line of its own is copied, at the top and in classes: aliases, protocols

A `readonly` attribute becomes a property, so that mypy refuses to set it. Functions and constants without such a
comment are for native code and stay out of the stub; so do attributes that are declared as `object` or a container, and
what begins with one underscore. A parameter may be None if that is its default. Names are imported from where the
module has them, else from the one module of `_native` that defines them.
"""

import ast
import builtins
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

from Cython.Compiler import ExprNodes, Nodes
from Cython.Compiler.Main import Context
from Cython.Compiler.Options import CompilationOptions
from Cython.Compiler.Scanning import FileSourceDescriptor
from Cython.Compiler.Symtab import ModuleScope

WIDTH = 110
NUMBERS = {"bint": "bool", "float": "float", "double": "float"}
INTEGER = re.compile(r"u?int\d+_t|s?size_t|Py_ssize_t|char|short|int|long|off_t|time_t|uintptr_t|Py_hash_t")
UNCLEAR = {"object", "list", "dict", "set", "frozenset", "tuple", "type"}
"""A parameter declared with one of these needs a comment."""
COMMENT = re.compile(r"# type: (.+?)(?:  # (.*))?$")
LITERAL = re.compile(r"-?\d[\w.]*|True|False|None|b?\"[^\"]*\"")
STANDARD = {
    "asyncio": "", "builtins": "", "enum": "", "ssl": "",
    "mmap": "mmap", "socket": "socket", "dataclass": "dataclasses", "PathLike": "os", "TracebackType": "types",
    "IntEnum": "enum", "AbstractContextManager": "contextlib", "Buffer": "typing_extensions",
} | dict.fromkeys(
    ("Callable", "Collection", "Iterable", "Iterator", "Mapping", "Sequence", "Set"), "collections.abc"
) | dict.fromkeys(("Any", "Generic", "NamedTuple", "Protocol", "TypeAlias", "TypeVar", "final"), "typing")  # fmt: skip


class StubError(Exception):
    """Where what is missing."""


@cache
def parse(path: Path) -> Nodes.Node:
    context = Context.from_options(CompilationOptions(language_level="3"))
    name = path.stem
    source = FileSourceDescriptor(str(path))
    return context.parse(source, ModuleScope(name, None, context), path.suffix == ".pxd", name)


def statements(node: Nodes.Node) -> list[Nodes.Node]:
    body = getattr(node, "body", node)
    return list(body.stats) if isinstance(body, Nodes.StatListNode) else [body]


@cache
def definitions(root: Path) -> dict[str, list[str]]:
    """Name of a class or alias → the modules of `_native` that define it."""
    found: dict[str, list[str]] = defaultdict(list)
    pattern = re.compile(
        r"^(?:cdef |# type: )?class (\w+)|^(?:# type: )?(\w+) = (?:tuple|TypeVar|\w+ \|)", re.M
    )
    for path in sorted((root / "_native").rglob("*.py*")):
        if path.suffix in (".py", ".pyx"):
            module = "firearrow." + ".".join(path.relative_to(root).with_suffix("").parts)
            for match in pattern.finditer(path.read_text("utf-8")):
                found[match[1] or match[2]].append(module)
    return found


class Stub:
    """The text of one stub. `root`: the folder that is the package `firearrow`."""

    def __init__(self, path: Path, root: Path) -> None:
        self._path = path
        self._root = root
        self._lines = path.read_text("utf-8").splitlines()
        self._pxd = path.with_suffix(".pxd")
        self._pxd_lines = self._pxd.read_text("utf-8").splitlines() if self._pxd.exists() else []
        self._used: set[str] = set()
        self._own: set[str] = set()

    def text(self) -> str:
        tree = parse(self._path)
        body = [
            *self._enums(),
            *self._copied(0, len(self._lines), ""),
            "",
            *self._statements(statements(tree)),
        ]
        parts = [*document(tree.doc or "", ""), *self._imports(statements(tree)), "", *body]
        return "# Made from the .pyx beside it; see packaging/stubs.py.\n" + "\n".join(parts).strip() + "\n"

    # ---- what is copied ----

    def _copied(self, start: int, end: int, indent: str) -> list[str]:
        """What stands in comments of their own between two lines."""
        prefix = f"{indent}# type: "
        found = [line[len(prefix) :] for line in self._lines[start:end] if line.startswith(prefix)]
        text = "\n".join(line for line in found if not line.startswith("("))
        for node in ast.parse(text).body:
            self._use_all(node)
            if isinstance(node, ast.ClassDef):
                self._own.add(node.name)
            elif isinstance(node, ast.ImportFrom):
                self._own.update(each.asname or each.name for each in node.names)
            elif not indent:
                self._own.update(
                    each.id
                    for each in ast.walk(node)
                    if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)
                )
        return [indent + line if line.strip() else "" for line in text.splitlines()]

    def _enums(self) -> Iterator[str]:
        """Those of the .pxd that Python sees."""
        for node in statements(parse(self._pxd)) if self._pxd_lines else []:
            if isinstance(node, Nodes.CEnumDefNode) and node.create_wrapper:
                self._own.add(node.name)
                yield from (f"class {node.name}(IntEnum):", *document(node.doc or "", "    "))
                self._used.add("IntEnum")
                yield from (
                    f"    {item.name} = {self._literal(item.value, self._pxd_lines)}" for item in node.items
                )

    # ---- statements ----

    def _statements(self, nodes: Iterable[Nodes.Node], indent: str = "", owner: str = "") -> Iterator[str]:
        for node in nodes:
            if isinstance(node, Nodes.CClassDefNode | Nodes.PyClassDefNode):
                yield from self._class(node, indent)
            elif isinstance(node, Nodes.DefNode | Nodes.CFuncDefNode):
                yield from self._function(node, indent, owner)
            elif isinstance(node, Nodes.SingleAssignmentNode | Nodes.ExprStatNode):
                yield from self._assignment(node, indent, owner)
            elif isinstance(node, Nodes.CVarDefNode):
                yield from self._attribute(node, indent, self._lines)

    def _class(self, node: Nodes.Node, indent: str) -> Iterator[str]:
        native = isinstance(node, Nodes.CClassDefNode)
        name = node.class_name if native else node.name
        if name.startswith("_"):
            return
        self._own.add(name)
        start = self._header(node.pos[1] - 1)
        decorators = self._decorators(start, self._lines)
        declared = self._declaration(name) if native else None
        if declared:
            decorators += self._decorators(
                self._header(declared.pos[1] - 1, self._pxd_lines), self._pxd_lines
            )
        comment = COMMENT.search(self._lines[start])
        given = comment[1] if comment else self._bases(start, declared)
        self._use(given)
        inner = indent + "    "
        body = document(node.doc or "", inner)
        if native and any("dataclass" in each for each in decorators):
            body += self._made_init(statements(node), inner)
        else:
            attributes = statements(declared) if declared else []
            body += [line for each in attributes for line in self._attribute(each, inner, self._pxd_lines)]
            body += self._copied(start, self._class_end(start, inner), inner)
            body += self._statements(statements(node), inner, name)
        for each in dict.fromkeys(decorators):
            shown = each.strip().replace("cython.final", "final")
            if shown == "@final" or (shown.startswith("@dataclass") and not native):
                self._use(re.split(r"[@(]", shown)[1])
                yield indent + shown
        yield f"{indent}class {name}({given}):" if given else f"{indent}class {name}:"
        yield from body or [inner + "..."]
        yield ""

    def _declaration(self, name: str) -> Nodes.Node | None:
        """Of a class in the .pxd."""
        for node in statements(parse(self._pxd)) if self._pxd_lines else []:
            if isinstance(node, Nodes.CClassDefNode) and node.class_name == name and node.body is not None:
                return node
        return None

    def _bases(self, start: int, declared: Nodes.Node | None) -> str:
        lines = [self._lines[start]]
        if declared:
            lines.append(self._pxd_lines[self._header(declared.pos[1] - 1, self._pxd_lines)])
        found = [match[1] for line in lines if (match := re.search(r"class \w+\((.*)\):", line))]
        return found[0] if found else ""

    def _class_end(self, start: int, indent: str) -> int:
        end = start + 1
        while end < len(self._lines) and (
            not self._lines[end].strip() or self._lines[end].startswith(indent)
        ):
            end += 1
        return end

    def _attribute(self, node: Nodes.Node, indent: str, lines: list[str]) -> Iterator[str]:
        if not isinstance(node, Nodes.CVarDefNode) or node.visibility not in ("public", "readonly"):
            return
        line = lines[node.pos[1] - 1]
        comment = COMMENT.search(line)
        plain = re.search(r" # (?!type: )(.*)$", line)
        shown = comment[1] if comment else declared_type(node.base_type)
        text = (comment[2] if comment else plain and plain[1]) or ""
        for declarator in node.declarators:
            if not shown or declarator.name.startswith("_"):
                continue
            self._use(shown)
            documented = document(text, indent + "    " * (node.visibility == "readonly"))
            if node.visibility == "public":
                yield from (f"{indent}{declarator.name}: {shown}", *documented)
            else:
                yield f"{indent}@property"
                yield f"{indent}def {declarator.name}(self) -> {shown}:" + ("" if documented else " ...")
                yield from documented

    def _assignment(self, node: Nodes.Node, indent: str, owner: str) -> Iterator[str]:
        start = (node.lhs if isinstance(node, Nodes.SingleAssignmentNode) else node).pos[1] - 1
        line = self._lines[start]
        field = re.match(r"\s*(\w+): (.+?)(?: = (.*?))?(?:  # .*)?$", line)
        comment = COMMENT.search(line)
        plain = re.match(r"\s*(\w+) = (.*?)(?:  # .*)?$", line)
        text = comment[2] if comment else None
        if field and owner and not field[1].startswith("_"):
            self._use(field[2])
            default = "" if field[3] is None else f" = {field[3] if LITERAL.fullmatch(field[3]) else '...'}"
            yield f"{indent}{field[1]}: {field[2]}{default}"
        elif comment and plain:
            self._use(comment[1])
            self._own.add(plain[1])
            yield f"{indent}{plain[1]}: {comment[1]}" + (
                f" = {plain[2]}" if comment[1] == "TypeAlias" else ""
            )
        elif plain and owner and not plain[1].startswith("_"):  # a member of an enum
            yield f"{indent}{plain[1]} = {plain[2] if LITERAL.fullmatch(plain[2]) else '...'}"
        else:
            return
        yield from document(text, indent) if text else self._string_at(self._end(start) + 1, indent)

    def _string_at(self, number: int, indent: str) -> Iterator[str]:
        """The docstring in the lines from `number` on."""
        text = "\n".join(self._lines[number : number + 30])
        found = re.match(rf'{indent}""".*?"""', text, re.S)
        yield from found[0].splitlines() if found else ()

    # ---- functions ----

    def _function(self, node: Nodes.Node, indent: str, owner: str) -> Iterator[str]:
        native = isinstance(node, Nodes.CFuncDefNode)
        if native and not node.overridable:
            return
        start = self._header(node.pos[1] - 1)
        end = self._end(start)
        comment = re.match(r"\s*# type: (\(.*)$", self._lines[end + 1] if end + 1 < len(self._lines) else "")
        if not native and node.name == "__getbuffer__":
            yield f"{indent}def __buffer__(self, flags: int, /) -> memoryview: ..."
        if not comment:
            return
        types = ast.parse(comment[1], mode="func_type")
        self._use_all(types)
        declarator = node.declarator if native else node
        name = node.declarator.base.name if native else node.name
        decorators = [
            each
            for each in self._decorators(start, self._lines)
            if re.fullmatch(r"\s*@(property|staticmethod|classmethod|\w+\.setter)", each)
        ]
        is_method = bool(owner) and not any("staticmethod" in each for each in decorators)
        given = [] if is_ellipsis(types.argtypes) else [ast.unparse(each) for each in types.argtypes]
        kind = "async def" if not native and node.is_async_def else "def"
        head = f"{indent}{kind} {'__init__' if name == '__cinit__' else name}("
        parameters = [*self._parameters(declarator, is_method, given, end)]
        tail = f") -> {ast.unparse(types.returns)}:"
        yield from decorators
        lines = [head + ", ".join(parameters) + tail]
        if len(lines[0]) > WIDTH:
            lines = [head, *(f"{indent}    {each}," for each in parameters), indent + tail]
        documented = document(node.doc or "", indent + "    ")
        if not documented:
            lines[-1] += " ..."
        yield from [*lines, *documented]

    def _parameters(self, node: Nodes.Node, is_method: bool, given: list[str], end: int) -> Iterator[str]:
        arguments = list(node.args)
        if is_method and not (arguments and arguments[0].declarator.name in ("self", "cls", "")):
            raise StubError(f"{self._path}:{end + 1}: a method without self")
        if is_method:
            first = arguments.pop(0)
            yield first.declarator.name or first.base_type.name or "self"
        types = iter(given)
        kind = "positional" if any(each.pos_only for each in arguments) else "both"
        star = getattr(node, "star_arg", None)
        for argument in arguments:
            if kind == "positional" and not argument.pos_only:
                yield "/"
                kind = "both"
            if kind == "both" and argument.kw_only:
                yield self._star(star, "*", types) if star else "*"
                kind = "keyword"
            yield self._parameter(argument, next(types, "") if given else "")
        if kind == "positional":
            yield "/"
        if star and kind != "keyword":
            yield self._star(star, "*", types)
        if rest := getattr(node, "starstar_arg", None):
            yield self._star(rest, "**", types)

    def _star(self, argument: Nodes.Node, prefix: str, types: Iterator[str]) -> str:
        shown = next(types, "").lstrip("*")
        if not shown:
            raise StubError(f"{self._path}:{argument.pos[1]}: the type of {argument.name} is missing")
        return f"{prefix}{argument.name}: {shown}"

    def _parameter(self, argument: Nodes.CArgDeclNode, shown: str) -> str:
        name, base = argument.declarator.name, argument.base_type
        if not name:  # Cython takes a lone name for a type
            name, base = base.name, None
        line = self._lines[argument.pos[1] - 1]
        comment = COMMENT.search(line)
        if comment and not comment[1].startswith("("):
            shown = comment[1]
            self._use(shown)
        elif not shown and base is not None:
            shown = declared_type(base)
            if shown and isinstance(argument.default, ExprNodes.NoneNode):
                shown += " | None"
            self._use(shown)
        if not shown:
            raise StubError(f"{self._path}:{argument.pos[1]}: the type of {name} is missing")
        return f"{name}: {shown}" + (f" = {self._literal(argument.default)}" if argument.default else "")

    def _made_init(self, nodes: list[Nodes.Node], indent: str) -> list[str]:
        """A native dataclass has an `__init__` of its fields, and shows none of them."""
        fields = []
        for node in nodes:
            match = re.match(r"\s*(\w+): (\w+)(?: = (.*))?$", self._lines[node.pos[1] - 1])
            if match:
                shown = "int" if INTEGER.fullmatch(match[2]) else match[2]
                fields.append(f"{match[1]}: {shown}" + (f" = {match[3]}" if match[3] else ""))
        return [f"{indent}def __init__(", f"{indent}    self,", *(f"{indent}    {each}," for each in fields),
                f"{indent}) -> None: ..."]  # fmt: skip

    # ---- lines ----

    def _header(self, number: int, lines: list[str] | None = None) -> int:
        """The line of `def` or `class`, after the decorators."""
        while not re.match(r"\s*(async )?(def|cpdef|cdef|class)\b", (lines or self._lines)[number]):
            number += 1
        return number

    @staticmethod
    def _decorators(header: int, lines: list[str]) -> list[str]:
        """The lines of decorators before a header; blank lines and comments may stand between."""
        found = []
        while header and (not (line := lines[header - 1].strip()) or line.startswith(("@", "#"))):
            header -= 1
            if line.startswith("@"):
                found.insert(0, lines[header])
        return found

    def _end(self, number: int) -> int:
        """The line in which the statement or header ends that begins in this one."""
        depth = 0
        while True:
            code = re.sub(r"  +# .*$", "", self._lines[number])
            depth += sum(code.count(each) for each in "([{") - sum(code.count(each) for each in ")]}")
            if depth == 0:
                return number
            number += 1

    def _literal(self, node: Nodes.Node | None, lines: list[str] | None = None) -> str:
        """A simple default as it is written, else `...`."""
        if isinstance(node, ExprNodes.NoneNode):
            return "None"
        if not isinstance(node, ExprNodes.ConstNode | ExprNodes.UnaryMinusNode | ExprNodes.UnicodeNode):
            return "..."
        text = (lines or self._lines)[node.pos[1] - 1][node.pos[2] :]
        match = re.match(r"-?\d[\w.]*|\w+|\"[^\"]*\"", text)
        return match[0] if match and match[0] not in ("b", "f", "r") else "..."

    # ---- names ----

    def _use(self, expression: str) -> None:
        if expression:
            self._use_all(ast.parse(f"f({expression})"))

    def _use_all(self, node: ast.AST) -> None:
        for each in ast.walk(node):
            if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Load):
                self._used.add(each.id)

    def _imports(self, nodes: list[Nodes.Node]) -> list[str]:
        imported, exported = self._imported(nodes)
        lines = {f"from {imported[name]} import {name} as {name}" for name in exported if name in imported}
        for name in self._used - self._own - exported - {"f", "super"}:
            if name in imported and not name.islower():
                lines.add(f"from {imported[name]} import {name}")
            elif name in STANDARD:
                lines.add(f"from {STANDARD[name]} import {name}" if STANDARD[name] else f"import {name}")
            elif not hasattr(builtins, name):
                lines.add(f"from {self._home(name)} import {name}")
        return sorted(lines)

    def _imported(self, nodes: list[Nodes.Node]) -> tuple[dict[str, str], set[str]]:
        """Name → module, and the names that are exported again: those that `__all__` has."""
        text = "\n".join(self._lines)
        names = re.search(r"^__all__ = \[(.*?)\]", text, re.M | re.S)
        exported = set(re.findall(r'"(\w+)"', names[1])) if names else set()
        pattern = re.compile(r"^from (firearrow[\w.]+) c?import (\([^)]*\)|.*)$", re.M)
        found = {}
        for module, imports in pattern.findall(text + "\n" + "\n".join(self._pxd_lines)):
            for name, other in re.findall(r"(\w+)(?: as (\w+))?", imports):
                found[other or name] = module
        return found, exported

    def _home(self, name: str) -> str:
        homes = definitions(self._root).get(name, [])
        if len(homes) != 1:
            places = ", ".join(homes) or "no module"
            raise StubError(f"{self._path}: {name} is not imported here, and defined in {places}")
        return homes[0]


def declared_type(node: Nodes.Node) -> str:
    """The Python type of a C type; empty: a comment has to give it."""
    if isinstance(node, Nodes.CQualifierTypeNode):
        return declared_type(node.base_type)
    if isinstance(node, Nodes.MemoryViewSliceTypeNode):
        return "Buffer"
    name = getattr(node, "name", None)
    if name is None or name in UNCLEAR:
        return ""
    return NUMBERS.get(name) or ("int" if INTEGER.fullmatch(name) else name)


def is_ellipsis(types: list[ast.expr]) -> bool:
    return len(types) == 1 and isinstance(types[0], ast.Constant) and types[0].value is ...


def document(text: str, indent: str) -> list[str]:
    if not text:
        return []
    lines = text.replace("\\", "\\\\").strip().splitlines()
    lines = [lines[0], *(line.strip() and indent + line.strip() for line in lines[1:])]
    end = '"""' if len(lines) == 1 or len(lines[-1]) < WIDTH - 3 else f'\n{indent}"""'
    return f'{indent}"""{chr(10).join(lines)}{end}'.splitlines()


def stub_of(path: Path, root: Path) -> str:
    return Stub(path, root).text()
