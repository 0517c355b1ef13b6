"""Public names of modules, with their signatures and docstrings, read from the source."""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from inspect import cleandoc
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "src"
RECORDS = {"BaseModel", "NamedTuple"}  # classes whose signature is the list of their fields, like dataclasses
ANNOTATED = re.compile(r"(\w+): ")
Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Definition:
    """One name of the reference."""

    kind: str
    """The Python domain's object type: function, class, method, property, attribute, data or module."""
    name: str
    docstring: str = ""
    signature: str = ""
    annotation: str = ""
    options: tuple[str, ...] = ()
    parameters: frozenset[str] = frozenset()
    members: tuple["Definition", ...] = ()


@dataclass(frozen=True)
class Module:
    """A parsed module."""

    name: str
    path: Path
    body: tuple[ast.stmt, ...]
    docstring: str

    def public_names(self) -> list[str]:
        """Return `__all__`, or else names imported as themselves and documented definitions."""
        for statement in self.body:
            match statement:
                case ast.Assign(targets=[ast.Name(id="__all__")], value=ast.List() as names):
                    return ast.literal_eval(names)
        imported = [
            alias.asname
            for statement in self.body
            if isinstance(statement, ast.ImportFrom)
            for alias in statement.names
            if alias.asname == alias.name
        ]
        defined = [name for name, statement, text in self.definitions() if text or isinstance(statement, ast.ClassDef)]
        if self.path.name == "__init__.py":  # its constants are tables of lazy imports
            defined = [name for name in defined if name != name.upper()]
        return sorted({name for name in [*imported, *defined] if not name.startswith("_")}, key=str.lower)

    def definitions(self) -> Iterator[tuple[str, ast.stmt, str]]:
        """Yield name, statement and docstring of each definition in this module."""
        for statement, text in with_docstrings(self.body):
            if isinstance(statement, Function | ast.ClassDef):
                yield statement.name, statement, ast.get_docstring(statement) or ""
            elif name := target_name(statement):
                yield name, statement, text

    def definition(self, name: str) -> Definition:
        """Describe a name, in the module that defines it."""
        found = [(one, text) for defined, one, text in self.definitions() if defined == name]
        if found:
            statement, text = found[-1]  # the implementation comes after the overloads
            if isinstance(statement, ast.ClassDef):
                return describe_class(self, statement)
            return describe_function("function", statement) if isinstance(statement, Function) else data(name, text)
        for statement in self.body:
            if isinstance(statement, ast.ImportFrom) and name in [one.asname or one.name for one in statement.names]:
                original = next(one.name for one in statement.names if name in (one.asname, one.name))
                origin = load_module(str(statement.module))
                return origin.definition(original)
        module = load_module(f"{self.name}.{name}")
        return Definition("module", module.name, module.docstring)

    def find_class(self, name: str) -> tuple["Module", ast.ClassDef] | None:
        """Return a class of the package by the name it has in this module, and its module."""
        for statement in self.body:
            if isinstance(statement, ast.ClassDef) and statement.name == name:
                return self, statement
            if isinstance(statement, ast.ImportFrom) and str(statement.module).startswith("softlook"):
                for alias in statement.names:
                    if name == (alias.asname or alias.name) and module_path(str(statement.module)):
                        return load_module(str(statement.module)).find_class(alias.name)
        return None


def module_path(name: str) -> Path | None:
    base = SOURCE / name.replace(".", "/")
    return next((path for path in (base / "__init__.py", base.with_suffix(".py")) if path.exists()), None)


@cache
def load_module(name: str) -> Module:
    """Parse a module; statements under `if TYPE_CHECKING:` count as its own."""
    path = module_path(name)
    if path is None:
        raise ValueError(f"{name} is no module of {SOURCE}")
    tree = ast.parse(path.read_text(encoding="utf-8"))
    body = [inner for one in tree.body for inner in (one.body if isinstance(one, ast.If) else [one])]
    return Module(name, path, tuple(body), ast.get_docstring(tree) or "")


def target_name(statement: ast.stmt) -> str:
    """Return the name that an assignment defines, or an empty string."""
    match statement:
        case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
            return name
    return ""


def with_docstrings(body: tuple[ast.stmt, ...] | list[ast.stmt]) -> Iterator[tuple[ast.stmt, str]]:
    """Yield each statement with the string that follows it."""
    for statement, after in zip(body, [*body[1:], None], strict=True):
        match after:
            case ast.Expr(value=ast.Constant(value=str(text))):
                yield statement, cleandoc(text)
            case _:
                yield statement, ""


def data(name: str, docstring: str) -> Definition:
    return Definition("data", name, docstring)


def describe_function(kind: str, function: Function) -> Definition:
    """Describe a function or a method, with its annotations as written."""
    arguments = function.args
    decorators = {ast.unparse(one).split(".")[-1] for one in function.decorator_list}
    if kind == "method" and "staticmethod" not in decorators:
        arguments = without_self(arguments)
    docstring = ast.get_docstring(function) or ""
    returns = f" -> {ast.unparse(function.returns)}" if function.returns else ""
    if decorators & {"property", "cached_property"}:
        return Definition("property", function.name, docstring, annotation=returns.removeprefix(" -> "))
    options = sorted(decorators & {"classmethod", "staticmethod"})
    if isinstance(function, ast.AsyncFunctionDef):
        options.append("async")
    names = frozenset(one.arg for one in ast.walk(arguments) if isinstance(one, ast.arg))
    signature = f"({ast.unparse(arguments)}){returns}"
    return Definition(kind, function.name, docstring, signature, options=tuple(options), parameters=names)


def without_self(arguments: ast.arguments) -> ast.arguments:
    positional, rest = list(arguments.posonlyargs), list(arguments.args)
    (positional or rest).pop(0)
    copy = {field: getattr(arguments, field) for field in arguments._fields}
    return ast.arguments(**{**copy, "posonlyargs": positional, "args": rest})


def describe_class(module: Module, node: ast.ClassDef) -> Definition:
    """Describe a class: how it is made, its documented fields and its public methods."""
    members = []
    for statement, text in with_docstrings(node.body):
        name = target_name(statement)
        if name and text:
            annotation = ast.unparse(statement.annotation) if isinstance(statement, ast.AnnAssign) else ""
            members.append(Definition("attribute", name, text, annotation=annotation))
        elif isinstance(statement, Function) and is_public(statement):
            members.append(describe_function("method", statement))
    unique = {member.name: member for member in members}  # of overloads, the implementation
    signature = constructor(module, node)
    names = frozenset([*unique, *ANNOTATED.findall(signature)])
    return Definition(
        "class",
        node.name,
        ast.get_docstring(node) or "",
        signature,
        parameters=names,
        members=tuple(sorted(unique.values(), key=lambda member: member.kind != "attribute")),
    )


def is_public(function: Function) -> bool:
    """Documented methods are public, and `forward`, whose annotations are the shapes of a layer."""
    return function.name == "forward" or bool(not function.name.startswith("_") and ast.get_docstring(function))


def lineage(module: Module, node: ast.ClassDef) -> Iterator[tuple[Module, ast.ClassDef]]:
    """Yield a class and its bases that belong to the package."""
    yield module, node
    for base in node.bases:
        found = module.find_class(ast.unparse(base).split("[")[0])
        if found:
            yield from lineage(*found)


def constructor(module: Module, node: ast.ClassDef) -> str:
    """Return the signature of a class: that of `__init__`, or the fields of a record."""
    classes = [one for _, one in lineage(module, node)]
    for one in classes:
        for statement in one.body:
            if isinstance(statement, ast.FunctionDef) and statement.name == "__init__":
                return f"({ast.unparse(without_self(statement.args))})"
    if not any(is_record(one) for one in classes):
        return ""
    fields = {}
    for one in reversed(classes):
        for statement in one.body:
            if isinstance(statement, ast.AnnAssign) and (field := field_text(statement)):
                fields[target_name(statement)] = field
    return f"({', '.join(sorted(fields.values(), key=lambda text: ' = ' in text))})"


def is_record(node: ast.ClassDef) -> bool:
    decorated = any("dataclass" in ast.unparse(one) for one in node.decorator_list)
    return decorated or bool(RECORDS & {ast.unparse(base) for base in node.bases})


def field_text(statement: ast.AnnAssign) -> str:
    """Return a field as a parameter, or nothing for one that the constructor does not take."""
    name, annotation = target_name(statement), ast.unparse(statement.annotation)
    if name.startswith("_") or annotation.startswith("ClassVar"):
        return ""
    match statement.value:
        case None:
            return f"{name}: {annotation}"
        case ast.Call(func=ast.Name(id="field" | "Field"), keywords=keywords, args=args):
            given = {keyword.arg: keyword.value for keyword in keywords}
            if "init" in given:
                return ""
            default = given.get("default", args[0] if args else None)
            if default is None and "default_factory" not in given:
                return f"{name}: {annotation}"
            return f"{name}: {annotation} = {ast.unparse(default) if default else '...'}"
        case value:
            return f"{name}: {annotation} = {ast.unparse(value)}"
