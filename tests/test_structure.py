"""The code follows rules that its syntax trees show, and the page on the architecture lists its packages."""

import ast
import re
import statistics
from collections.abc import Iterator
from pathlib import Path

import pytest

from pellucid.config.task_settings import BUILT_IN_SETTINGS

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "pellucid"
MAX_LINES_OF_90_PERCENT = 18
FORBIDDEN_NAMES = {"utils", "util", "helpers", "helper", "common", "misc"}
Function = ast.FunctionDef | ast.AsyncFunctionDef
SOURCES = {path.relative_to(ROOT).as_posix(): path.read_text("utf-8") for path in sorted(PACKAGE.rglob("*.py"))}
PACKAGES = sorted(path.removesuffix("/__init__.py") for path in SOURCES if path.endswith("/__init__.py"))


def list_functions(tree: ast.AST) -> list[Function]:
    return [node for node in ast.walk(tree) if isinstance(node, Function)]


def count_lines(function: Function) -> int:
    """Return the number of lines of the signature and of the body without its docstring."""
    first = function.body[0]
    documented = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant)
    docstring = (first.end_lineno or first.lineno) - first.lineno + 1 if documented else 0
    return (function.end_lineno or function.lineno) - function.lineno + 1 - docstring


def list_parameters(function: Function) -> list[ast.arg]:
    """Return all parameters except self and cls, including *arguments and **keywords."""
    arguments = function.args
    named = [
        *arguments.posonlyargs,
        *arguments.args,
        *arguments.kwonlyargs,
        *filter(None, [arguments.vararg, arguments.kwarg]),
    ]
    return named[1:] if named and named[0].arg in ("self", "cls") else named


def find_signature_violations(function: Function) -> Iterator[str]:
    """Yield the violations in the annotations and defaults of a function."""
    parameters = list_parameters(function)
    if function.args.kwarg and not ast.unparse(function.args.kwarg.annotation or function).endswith(".kwargs"):
        yield "takes **" + function.args.kwarg.arg
    if function.returns is None or not all(parameter.annotation for parameter in parameters):
        yield "is not fully annotated"
    for default in [*function.args.defaults, *filter(None, function.args.kw_defaults)]:
        if re.match(r"[\[{]|(list|dict|set|bytearray)\(", ast.unparse(default)):
            yield f"has the mutable default {ast.unparse(default)}"


def find_undocumented(node: ast.Module | ast.ClassDef) -> Iterator[str]:
    """Yield the public classes, functions and methods without a docstring."""
    for inner in node.body:
        if isinstance(inner, ast.ClassDef | Function) and not inner.name.startswith("_"):
            if ast.get_docstring(inner) is None:
                yield inner.name
            if isinstance(inner, ast.ClassDef):
                yield from find_undocumented(inner)


def find_prints(path: str, tree: ast.Module) -> Iterator[str]:
    """Yield the calls of print outside cli/."""
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
    *("CorpusError", "RunError", "DataMismatchError", "NotFiniteError", "DivergenceError", "ValidationFileError"),
    *("UnsupportedError", "MissingDependencyError", "MissingExtensionError", "NetworkMismatchError"),
    *("QueueFullError", "WorkerDiedError", "OptionsError", "StudyUnreachableError"),
}
"""Errors of Pellucid, whose messages quote only short texts."""
QUOTING_FUNCTIONS = {
    "abbreviate_reason",
    "os_error_text",
    "_msgspec_expectation",
    "describe_worker_error",
    "_damaged",
    "_error_text",
    "convert_ray_error",
    "self.convert_error",
    "is_out_of_memory",
    "inaccessible_folder",
    "_system_error_message",
    "_failure_message",
    "_is_lost_memory_error",
    "isinstance",
    "type",
    "partial",
    "describe_failure",
    "extension_error",
    "_is_about_none",
    "stop_signal",
}
"""Functions that accept an error of another library and return a short text without control characters, or no text."""


def find_copied_messages(tree: ast.Module) -> Iterator[str]:
    """Yield the lines that copy the message of another library, which may quote a file at any length."""
    for handler in ast.walk(tree):
        if not isinstance(handler, ast.ExceptHandler) or handler.name is None or handler.type is None:
            continue
        kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
        if {ast.unparse(kind) for kind in kinds} <= OWN_ERRORS:
            continue
        allowed = set[int]()
        for node in ast.walk(handler):
            quoting = isinstance(node, ast.Call) and ast.unparse(node.func) in QUOTING_FUNCTIONS
            if quoting or isinstance(node, ast.Attribute | ast.Compare):  # attributes are allowed
                allowed |= set(map(id, ast.walk(node)))
            elif isinstance(node, ast.Raise) and node.cause is not None:
                allowed.add(id(node.cause))
            elif isinstance(node, ast.Assign):  # the error itself, which is raised later
                allowed.add(id(node.value))
        for node in ast.walk(handler):
            if isinstance(node, ast.Name) and node.id == handler.name and id(node) not in allowed:
                yield f"{node.lineno}: repeats the words of another library: give abbreviate_reason({node.id})"


def find_violations(path: str, source: str) -> list[str]:
    """Return all violations in one file."""
    tree, lines = ast.parse(source), source.splitlines()
    result = [f"{number}: {mark}" for number, line in enumerate(lines, 1) for mark in ("TODO", "FIXME") if mark in line]
    if FORBIDDEN_NAMES & {*Path(path).parts, Path(path).stem}:
        result.append(" is named after nothing in particular")
    if ast.get_docstring(tree) is None:
        result.append(" has no docstring")
    result += [f" {name} has no docstring" for name in find_undocumented(tree)]
    result += [
        f"{node.lineno}: {node.name} {violation}"
        for node in list_functions(tree)
        for violation in find_signature_violations(node)
    ]
    return [f"{path}:{violation}" for violation in [*result, *find_prints(path, tree), *find_copied_messages(tree)]]


def format_table() -> str:
    """Return a table with the measures of every file, for the message of a failure."""
    rows = [f"\n{'file':44}{'lines':>7}{'functions':>11}{'median':>8}{'longest':>9}{'parameters':>12}"]
    for path, source in SOURCES.items():
        nodes = list_functions(ast.parse(source))
        lengths = [count_lines(function) for function in nodes] or [0]
        most = max([len(list_parameters(function)) for function in nodes], default=0)
        row = f"{len(source.splitlines()):7}{len(nodes):11}{statistics.median(lengths):8.0f}{max(lengths):9}{most:12}"
        rows.append(f"{path:44}{row}")
    return "\n".join(rows)


@pytest.mark.slow
def test_every_file_follows_the_rules() -> None:
    result = [violation for path, source in SOURCES.items() for violation in find_violations(path, source)]
    assert not result, "\n".join(["", *result, format_table()])


@pytest.mark.slow
def test_90_percent_of_functions_are_short() -> None:
    lengths = [count_lines(function) for source in SOURCES.values() for function in list_functions(ast.parse(source))]
    percentile_90 = statistics.quantiles(lengths, n=10, method="inclusive")[-1]
    assert percentile_90 <= MAX_LINES_OF_90_PERCENT, f"the 90th percentile is {percentile_90:.0f} lines{format_table()}"


TASK_MODULES = (
    *("pellucid/tasks/", "pellucid/config/task_settings.py"),
    *("pellucid/serving/schema.py", "pellucid/serving/decoding_worker.py"),
)
"""The modules that may name a task, in addition to the default of the setting; the operations of the HTTP service have
names of tasks."""


def find_task_names(source: str) -> Iterator[str]:
    """Yield the strings, other than docstrings, that are the name of a task or quote one."""
    tree, name = ast.parse(source), "|".join(BUILT_IN_SETTINGS)
    docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        text = node.value if isinstance(node, ast.Constant) and id(node) not in docstrings else None
        if isinstance(text, str) and re.search(rf"^({name})$|['\"]({name})['\"]", text):
            yield f"{getattr(node, 'lineno', 0)}: names the task {text!r}"


@pytest.mark.slow
def test_only_tasks_and_the_default_name_a_task() -> None:
    """TOML files of recipes, tests and documents may name tasks."""
    others = {path: source for path, source in SOURCES.items() if not path.startswith(TASK_MODULES)}
    result = [f"{path}:{violation}" for path, source in others.items() for violation in find_task_names(source)]
    default = SOURCES["pellucid/config/settings.py"].split('DEFAULT_TASK: TaskName = "transduce"')[0].count("\n") + 1
    assert result == [f"pellucid/config/settings.py:{default}: names the task 'transduce'"]


def test_named_tasks_are_found() -> None:
    assert list(find_task_names('if task == "tag": pass')) == ["1: names the task 'tag'"]
    assert list(find_task_names("match task:\n    case 'classify': pass")) == ["2: names the task 'classify'"]
    assert len(list(find_task_names("say(\"task = 'point'\")"))) == 1
    assert list(find_task_names('"""A docstring: task = \'point\'."""\nsay("each tag")')) == []


DOCSTRING = '"""What it is."""\n'


@pytest.mark.parametrize(
    ("source", "violation"),
    [
        ("x = 1", "has no docstring"),
        (DOCSTRING + "def _f(**options: int) -> None: ...", "takes **options"),
        (DOCSTRING + "def _f(a) -> None: ...", "not fully annotated"),
        (DOCSTRING + "def _f(*a) -> None: ...", "not fully annotated"),
        (DOCSTRING + "class _C:\n  def f(self): ...", "f is not fully annotated"),
        (DOCSTRING + "def _f(a: list[int] = []) -> None: ...", "mutable default []"),
        (DOCSTRING + "def _f(*, a: set[int] = set()) -> None: ...", "mutable default set()"),
        (DOCSTRING + "def f() -> None: ...", "f has no docstring"),
        (DOCSTRING + 'class C:\n  """It."""\n  async def f(self) -> None: ...', "f has no docstring"),
        (DOCSTRING + "class C: ...", "C has no docstring"),
        (DOCSTRING + "x = 1  # TODO: two", ":2: TODO"),
        (DOCSTRING + "# FIXME", ":2: FIXME"),
        (DOCSTRING + "print(1)", ":2: prints"),
        (
            DOCSTRING + "try: f()\nexcept ValueError as error:\n  raise RunError(f'{p}: {error}') from error",
            ":4: repeats the words",
        ),
        (DOCSTRING + "try: f()\nexcept (RunError, OSError) as e:\n  g(str(e))", ":4: repeats the words"),
    ],
)
def test_violations_are_found(source: str, violation: str) -> None:
    assert violation in "\n".join(find_violations("pellucid/data/tokenizers.py", source))


def test_valid_files_have_no_violations() -> None:
    body = "\n    def f(self, a: int, *rest: int, b: tuple[int, ...] = ()) -> int:\n        return console.print(a)\n"
    assert find_violations("pellucid/reporting/page.py", DOCSTRING + "class _C:" + body) == []
    assert find_violations("pellucid/cli/train.py", DOCSTRING + "print(1)") == []
    short = "try: f()\nexcept OSError as e: raise RunError(os_error_text(e)) from e\nexcept RunError as e: g(str(e))"
    assert find_violations("pellucid/files.py", DOCSTRING + short) == []
    assert find_violations("pellucid/data/utils.py", DOCSTRING) == [
        "pellucid/data/utils.py: is named after nothing in particular"
    ]


ARRAY_TYPES = {"Bool", "Float", "Int", "Integer", "UInt", "UInt32"}
"""Types of `pellucid.shapes`, whose second argument names the dimensions."""


def list_shape_letters(tree: ast.AST) -> set[str]:
    """Return the capital letters that name a dimension, alone or in a sum, in the types of arrays."""
    letters = set[str]()
    for node in ast.walk(tree):
        if not (isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name) and node.value.id in ARRAY_TYPES):
            continue
        for part in ast.walk(node.slice):
            if isinstance(part, ast.Constant) and isinstance(part.value, str):
                letters.update(
                    re.findall(r"(?<![A-Za-z_])[A-Z](?![A-Za-z_])", re.sub(r"([A-Z])1\b", r"\1", part.value))
                )
    return letters


def read_glossary_letters(text: str) -> set[str]:
    """Return the letters that the glossary lists as symbols of all modules."""
    return {
        letter for row in re.findall(r"^\| ([A-Z](?:, [A-Z])*) \|", text, re.MULTILINE) for letter in row.split(", ")
    }


def find_unexplained_letters(source: str, known: set[str]) -> list[str]:
    """Return the letters of dimensions that neither the glossary nor the docstring of the module explains."""
    tree = ast.parse(source)
    docstring = ast.get_docstring(tree) or ""
    explained = known | set(re.findall(r"(?<![A-Za-z])[A-Z](?![A-Za-z])", docstring))
    return sorted(list_shape_letters(tree) - explained)


@pytest.mark.slow
def test_every_module_explains_the_letters_of_its_shapes() -> None:
    known = read_glossary_letters((ROOT / "docs" / "glossary.md").read_text("utf-8"))
    assert {*"BSTDHAEVK"} <= known
    unexplained = {path: find_unexplained_letters(source, known) for path, source in SOURCES.items()}
    assert {path: letters for path, letters in unexplained.items() if letters} == {}


def test_unexplained_letters_are_found() -> None:
    body = 'def f(a: Float[np.ndarray, "B Q S+1 T1 n"], b: Int[Tensor, " P"]) -> str: return "X Y"'
    assert find_unexplained_letters(f'"""Functions."""\n{body}', {*"BST"}) == ["P", "Q"]
    assert find_unexplained_letters(f'"""B sources, P parameters, Q gates."""\n{body}', {*"ST"}) == []
    assert read_glossary_letters("| B | batch |\n| S, T | positions |\n| $U$ | matrix |") == {*"BST"}


def read_package_table(text: str) -> list[tuple[str, str]]:
    """Return the package and its first module of each row of the table in the page on the architecture."""
    return re.findall(r"^\| `(\w+)` \| \S.*? \| `(\w+\.py)` \|$", text, re.MULTILINE)


def test_the_architecture_page_lists_every_package_and_module() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text("utf-8")
    rows = read_package_table(text)
    top = {package.removeprefix("pellucid/") for package in PACKAGES if package.count("/") == 1}
    assert sorted(package for package, _ in rows) == sorted(top)
    for package, start in rows:
        assert f"Start with: {start}." in SOURCES[f"pellucid/{package}/__init__.py"]
    modules = {Path(path).stem for path in SOURCES if path.count("/") == 1} - {"__init__", "__main__"}
    assert [module for module in modules if f"`{module}`" not in text] == []


@pytest.mark.slow
def test_the_architecture_page_orders_packages_by_imports() -> None:
    packages = [package for package, _ in read_package_table((ROOT / "docs" / "architecture.md").read_text("utf-8"))]
    for position, package in enumerate(packages):
        later = set(packages[position + 1 :]) & set(list_imported_packages(package))
        assert not later, f"{package} imports {later}"


def list_imported_packages(folder: str) -> list[str]:
    """Return the subpackages of pellucid that the modules of a package import, except its own."""
    result: set[str] = set()
    for path, source in SOURCES.items():
        if path.startswith(f"pellucid/{folder}/"):
            for node in ast.walk(ast.parse(source)):
                if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("pellucid"):
                    parts = [*(node.module or "").split(".")[1:], node.names[0].name]
                    result.add(parts[0])
    return sorted(result - {folder.split("/")[0]})


@pytest.mark.parametrize("package", [package for package in PACKAGES if package != "pellucid"])
def test_a_package_docstring_states_contents_imports_and_first_module(package: str) -> None:
    """The stated imports equal the imports of its modules."""
    docstring = " ".join((ast.get_docstring(ast.parse(SOURCES[f"{package}/__init__.py"])) or "").split())
    statements = re.fullmatch(
        r"(?P<holds>\w.*?\.) Imports: (?P<imports>[\w, ]+)\. Start with: (?P<start>\w+\.py)\..*", docstring
    )
    assert statements is not None, docstring
    assert statements["imports"].split(", ") == list_imported_packages(package.removeprefix("pellucid/"))
    assert f"{package}/{statements['start']}" in SOURCES
