"""Rules for the code, measured from its syntax trees, and the page on the architecture."""

import ast
import re
import statistics
from collections.abc import Iterator
from pathlib import Path

import pytest

from pellucid.tasks.task_settings import BUILT_IN

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "pellucid"
USUAL_FUNCTION_LINES = 18
FORBIDDEN_NAMES = {"utils", "util", "helpers", "helper", "common", "misc"}
Function = ast.FunctionDef | ast.AsyncFunctionDef
SOURCES = {path.relative_to(ROOT).as_posix(): path.read_text("utf-8") for path in sorted(PACKAGE.rglob("*.py"))}
PACKAGES = sorted(path.removesuffix("/__init__.py") for path in SOURCES if path.endswith("/__init__.py"))


def functions(tree: ast.AST) -> list[Function]:
    return [node for node in ast.walk(tree) if isinstance(node, Function)]


def lines_of(function: Function) -> int:
    """Number of lines of the signature and of the body without its docstring."""
    first = function.body[0]
    documented = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant)
    docstring = (first.end_lineno or first.lineno) - first.lineno + 1 if documented else 0
    return (function.end_lineno or function.lineno) - function.lineno + 1 - docstring


def parameters_of(function: Function) -> list[ast.arg]:
    """All parameters but self and cls, *arguments and **keywords included."""
    own = function.args
    named = [*own.posonlyargs, *own.args, *own.kwonlyargs, *filter(None, [own.vararg, own.kwarg])]
    return named[1:] if named and named[0].arg in ("self", "cls") else named


def signature_faults(function: Function) -> Iterator[str]:
    """What is wrong with one function's annotations and defaults."""
    parameters = parameters_of(function)
    if function.args.kwarg and not ast.unparse(function.args.kwarg.annotation or function).endswith(".kwargs"):
        yield "takes **" + function.args.kwarg.arg
    if function.returns is None or not all(parameter.annotation for parameter in parameters):
        yield "is not fully annotated"
    for default in [*function.args.defaults, *filter(None, function.args.kw_defaults)]:
        if re.match(r"[\[{]|(list|dict|set|bytearray)\(", ast.unparse(default)):
            yield f"has the mutable default {ast.unparse(default)}"


def undocumented(node: ast.Module | ast.ClassDef) -> Iterator[str]:
    """The public classes and functions of a module, and methods of public classes, that lack a docstring."""
    for inner in node.body:
        if isinstance(inner, ast.ClassDef | Function) and not inner.name.startswith("_"):
            if ast.get_docstring(inner) is None:
                yield inner.name
            if isinstance(inner, ast.ClassDef):
                yield from undocumented(inner)


def spoken(path: str, tree: ast.Module) -> Iterator[str]:
    """The calls of print outside cli/."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "print" and not path.startswith("pellucid/cli/"):
            yield f"{node.lineno}: prints; only cli/ speaks to the terminal"


OWN_ERRORS = {
    *(
        "InputError",
        "ConfigError",
        "ArgumentError",
        "ConstraintError",
        "TypeMismatchError",
        "ReproductionError",
        "DataError",
        "HeaderError",
        "RecordError",
    ),
    *("CorpusError", "RunError", "NotFiniteError", "DivergenceError"),
}
"""Errors whose words are Pellucid's own, and quote nothing at length."""
QUOTING = {"abbreviate_reason", "os_error_text", "_msgspec_expectation", "_damaged", "isinstance", "type"}
"""What may be called with an error of another library: what it returns is short, and acts on no terminal."""


def repeated(tree: ast.Module) -> Iterator[str]:
    """The places that repeat another library's words, which may quote a file from a stranger at any length."""
    for handler in ast.walk(tree):
        if not isinstance(handler, ast.ExceptHandler) or handler.name is None or handler.type is None:
            continue
        kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
        if {ast.unparse(kind) for kind in kinds} <= OWN_ERRORS:
            continue
        allowed = set[int]()
        for node in ast.walk(handler):
            quoting = isinstance(node, ast.Call) and ast.unparse(node.func) in QUOTING
            if quoting or isinstance(node, ast.Attribute | ast.Compare):  # an attribute is chosen with care
                allowed |= set(map(id, ast.walk(node)))
            elif isinstance(node, ast.Raise) and node.cause is not None:
                allowed.add(id(node.cause))
        for node in ast.walk(handler):
            if isinstance(node, ast.Name) and node.id == handler.name and id(node) not in allowed:
                yield f"{node.lineno}: repeats the words of another library: give abbreviate_reason({node.id})"


def faults(path: str, source: str) -> list[str]:
    """Everything that is wrong with one file by itself."""
    tree, lines = ast.parse(source), source.splitlines()
    found = [f"{number}: {mark}" for number, line in enumerate(lines, 1) for mark in ("TODO", "FIXME") if mark in line]
    if FORBIDDEN_NAMES & {*Path(path).parts, Path(path).stem}:
        found.append(" is named after nothing in particular")
    if ast.get_docstring(tree) is None:
        found.append(" has no docstring")
    found += [f" {name} has no docstring" for name in undocumented(tree)]
    found += [f"{node.lineno}: {node.name} {fault}" for node in functions(tree) for fault in signature_faults(node)]
    return [f"{path}:{fault}" for fault in [*found, *spoken(path, tree), *repeated(tree)]]


def table() -> str:
    """The measures of every file, for the reader of a failure."""
    rows = [f"\n{'file':44}{'lines':>7}{'functions':>11}{'median':>8}{'longest':>9}{'parameters':>12}"]
    for path, source in SOURCES.items():
        own = functions(ast.parse(source))
        lengths = [lines_of(function) for function in own] or [0]
        most = max([len(parameters_of(function)) for function in own], default=0)
        row = f"{len(source.splitlines()):7}{len(own):11}{statistics.median(lengths):8.0f}{max(lengths):9}{most:12}"
        rows.append(f"{path:44}{row}")
    return "\n".join(rows)


def test_every_file_keeps_the_rules() -> None:
    found = [fault for path, source in SOURCES.items() for fault in faults(path, source)]
    assert not found, "\n".join(["", *found, table()])


def test_nine_functions_of_ten_are_short() -> None:
    lengths = [lines_of(function) for source in SOURCES.values() for function in functions(ast.parse(source))]
    ninth = statistics.quantiles(lengths, n=10, method="inclusive")[-1]
    assert ninth <= USUAL_FUNCTION_LINES, f"the 90th percentile is {ninth:.0f} lines{table()}"


def named_tasks(source: str) -> Iterator[str]:
    """The texts of a file, other than docstrings, that are the name of a task, or hold one in quotation marks."""
    tree, name = ast.parse(source), "|".join(BUILT_IN)
    told = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        text = node.value if isinstance(node, ast.Constant) and id(node) not in told else None
        if isinstance(text, str) and re.search(rf"^({name})$|['\"]({name})['\"]", text):
            yield f"{getattr(node, 'lineno', 0)}: names the task {text!r}"


def test_only_tasks_and_the_default_name_a_task() -> None:
    """Recipes choose their task in their TOML files; tests and documents name tasks as users do."""
    others = {path: source for path, source in SOURCES.items() if not path.startswith("pellucid/tasks/")}
    found = [f"{path}:{fault}" for path, source in others.items() for fault in named_tasks(source)]
    default = SOURCES["pellucid/config/settings.py"].split('DEFAULT_TASK: Task = "transduce"')[0].count("\n") + 1
    assert found == [f"pellucid/config/settings.py:{default}: names the task 'transduce'"]


def test_named_tasks_are_found() -> None:
    assert list(named_tasks('if task == "tag": pass')) == ["1: names the task 'tag'"]
    assert list(named_tasks("match task:\n    case 'classify': pass")) == ["2: names the task 'classify'"]
    assert len(list(named_tasks("say(\"task = 'point'\")"))) == 1
    assert list(named_tasks('"""A docstring: task = \'point\'."""\nsay("each tag")')) == []


GOOD = '"""What it is."""\n'


@pytest.mark.parametrize(
    ("source", "fault"),
    [
        ("x = 1", "has no docstring"),
        (GOOD + "def _f(**options: int) -> None: ...", "takes **options"),
        (GOOD + "def _f(a) -> None: ...", "not fully annotated"),
        (GOOD + "def _f(*a) -> None: ...", "not fully annotated"),
        (GOOD + "class _C:\n  def f(self): ...", "f is not fully annotated"),
        (GOOD + "def _f(a: list[int] = []) -> None: ...", "mutable default []"),
        (GOOD + "def _f(*, a: set[int] = set()) -> None: ...", "mutable default set()"),
        (GOOD + "def f() -> None: ...", "f has no docstring"),
        (GOOD + 'class C:\n  """It."""\n  async def f(self) -> None: ...', "f has no docstring"),
        (GOOD + "class C: ...", "C has no docstring"),
        (GOOD + "x = 1  # TODO: two", ":2: TODO"),
        (GOOD + "# FIXME", ":2: FIXME"),
        (GOOD + "print(1)", ":2: prints"),
        (
            GOOD + "try: f()\nexcept ValueError as error:\n  raise RunError(f'{p}: {error}') from error",
            ":4: repeats the words",
        ),
        (GOOD + "try: f()\nexcept (RunError, OSError) as e:\n  g(str(e))", ":4: repeats the words"),
    ],
)
def test_broken_rules_are_found(source: str, fault: str) -> None:
    assert fault in "\n".join(faults("pellucid/data/tokenizers.py", source))


def test_kept_rules_are_no_fault() -> None:
    body = "\n    def f(self, a: int, *rest: int, b: tuple[int, ...] = ()) -> int:\n        return console.print(a)\n"
    assert faults("pellucid/reporting/page.py", GOOD + "class _C:" + body) == []
    assert faults("pellucid/cli/train.py", GOOD + "print(1)") == []
    short = "try: f()\nexcept OSError as e: raise RunError(os_error_text(e)) from e\nexcept RunError as e: g(str(e))"
    assert faults("pellucid/files.py", GOOD + short) == []
    assert faults("pellucid/data/utils.py", GOOD) == ["pellucid/data/utils.py: is named after nothing in particular"]


def table_rows(text: str) -> list[tuple[str, str]]:
    """Return the package and its first module of each row of the table in the page on the architecture."""
    return re.findall(r"^\| `(\w+)` \| \S.*? \| `(\w+\.py)` \|$", text, re.MULTILINE)


def test_the_architecture_page_lists_every_package_and_module() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text("utf-8")
    rows = table_rows(text)
    top = {package.removeprefix("pellucid/") for package in PACKAGES if package.count("/") == 1}
    assert sorted(package for package, _ in rows) == sorted(top)
    for package, start in rows:
        assert f"Start with: {start}." in SOURCES[f"pellucid/{package}/__init__.py"]
    modules = {Path(path).stem for path in SOURCES if path.count("/") == 1} - {"__init__", "__main__"}
    assert [module for module in modules if f"`{module}`" not in text] == []


def test_the_architecture_page_orders_packages_by_imports() -> None:
    packages = [package for package, _ in table_rows((ROOT / "docs" / "architecture.md").read_text("utf-8"))]
    for position, package in enumerate(packages):
        later = set(packages[position + 1 :]) & set(imported_packages(package))
        allowed = (
            {"tasks"} if package in ("config", "decoding") else set()
        )  # the settings of tasks (tasks/task_settings.py)
        assert later <= allowed, f"{package} imports {later}"


def imported_packages(folder: str) -> list[str]:
    """Return the parts of pellucid that the modules of a package import, other than the part that it belongs to."""
    found: set[str] = set()
    for path, source in SOURCES.items():
        if path.startswith(f"pellucid/{folder}/"):
            for node in ast.walk(ast.parse(source)):
                if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("pellucid"):
                    below = [*(node.module or "").split(".")[1:], node.names[0].name]
                    found.add(below[0])
    return sorted(found - {folder.split("/")[0]})


@pytest.mark.parametrize("package", [package for package in PACKAGES if package != "pellucid"])
def test_a_package_says_what_it_holds_what_it_imports_and_where_to_start(package: str) -> None:
    """Three statements of the docstring of a package; what it says of imports is what its modules import."""
    told = " ".join((ast.get_docstring(ast.parse(SOURCES[f"{package}/__init__.py"])) or "").split())
    said = re.fullmatch(r"(?P<holds>\w.*?\.) Imports: (?P<imports>[\w, ]+)\. Start with: (?P<start>\w+\.py)\..*", told)
    assert said is not None, told
    assert said["imports"].split(", ") == imported_packages(package.removeprefix("pellucid/"))
    assert f"{package}/{said['start']}" in SOURCES
