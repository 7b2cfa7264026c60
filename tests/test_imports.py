"""Who may import whom, what nobody may, and what an import costs."""

import ast
import importlib
import importlib.util
import pkgutil
import resource
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import pytest

import pellucid

ROOT = Path(__file__).parents[1]
SOURCES = {path.relative_to(ROOT).as_posix(): path.read_text("utf-8") for path in sorted(ROOT.glob("pellucid/**/*.py"))}
ORDER = (
    *("version", "errors", "error_messages", "arguments", "file_lock", "files", "worker_pool"),
    *("config.settings", "config.presets", "tasks.task_settings", "config"),
    *("data", "kernels", "model", "decoding", "evaluation", "tasks", "inspection", "training"),
    *("reporting", "viewer", "api", "tuning", "recipes", "bench", "cli"),
)
"""The path of the data: a file imports from its own folder and from what stands before it here.

The settings of the tasks stand far before the tasks themselves: a configuration is checked by them.
"""
DATA_ORDER = (
    *("tokenizers", "lines", "headers", "readers", "examples", "vocabulary", "vectors", "batches"),
    *("extended_vocabulary", "target_encoding", "corpus", "batch_loaders", "synthetic"),
)
"""The same for the files of data/, one by one."""
EXTRAS = {
    "pellucid.kernels.triton_attention": "triton",
    "pellucid.tuning.study": "optuna",
    "pellucid.tuning.search": "optuna",
}
"""Modules that need what only some install; nothing imports them but inside a function."""

FORBIDDEN = {
    **dict.fromkeys(["pickle", "dill", "cloudpickle", "joblib", "shelve"], "a run folder holds no code"),
    **dict.fromkeys(["torch.save", "torch.load"], "it is pickle within"),
    **dict.fromkeys(["matplotlib.pyplot", "pylab"], "it draws on global state; use Figure"),
    "__future__.annotations": "shapes are checked from the annotations themselves",
}


class Import(NamedTuple):
    """One imported module or name, in dots, and where it is imported."""

    target: str
    line: int
    in_function: bool


def module_name(path: str) -> str:
    """pellucid/data/tokenizers.py → pellucid.data.tokenizers; a folder's __init__.py has the folder's name."""
    return path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def imports(path: str, tree: ast.AST) -> Iterator[Import]:
    """Everything a file imports, wherever it does; "from a import b" is "a.b"."""
    later = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    typing = [node for node in ast.walk(tree) if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"]
    inside = {id(node) for block in (*later, *typing) for node in ast.walk(block)}
    folder = module_name(path) if path.endswith("__init__.py") else module_name(path).rpartition(".")[0]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            targets = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            start = importlib.util.resolve_name("." * node.level + (node.module or ""), folder)
            targets = [f"{start}.{alias.name}" for alias in node.names]
        else:
            continue
        yield from (Import(target, node.lineno, id(node) in inside) for target in targets)


def place(module: str) -> tuple[int, int]:
    """Where a module stands in the two orders; a name inside a module stands where the module does."""
    first, second = [*module.split(".")[1:], "", ""][:2]
    within = DATA_ORDER.index(second) if first == "data" and second in DATA_ORDER else len(DATA_ORDER)
    own = f"{first}.{second}" if f"{first}.{second}" in ORDER else first
    return ORDER.index(own) if own in ORDER else len(ORDER), within


def is_below(path: str, target: str) -> bool:
    """Whether an import goes against the order. Files of other folders than data/ may import each other."""
    (own, own_file), (other, other_file) = place(module_name(path)), place(target)
    return other > own or (own == other and own_file <= other_file and own_file < len(DATA_ORDER))


def import_faults(sources: Mapping[str, str]) -> list[str]:
    """Each import against the order, also one inside a function. The package itself, pellucid, stands above all."""
    faults = []
    for path, source in sources.items():
        for target, line, _ in imports(path, ast.parse(source)):
            if module_name(path) != "pellucid" and target.split(".")[0] == "pellucid" and is_below(path, target):
                faults.append(f"{path}:{line}: imports {target}, which stands below it")
    return faults


def order_faults(paths: list[str]) -> list[str]:
    """Each file that has no place in the order."""
    found = []
    for path in paths:
        first, second = [*module_name(path).split(".")[1:], "", ""][:2]
        if first not in (*ORDER, "__main__", "") or (first == "data" and second not in (*DATA_ORDER, "")):
            found.append(f"{path}: give it a place in ORDER or DATA_ORDER")
    return found


def test_imports_follow_the_data() -> None:
    assert order_faults(list(SOURCES)) + import_faults(SOURCES) == []


@pytest.mark.parametrize(
    ("path", "source", "fault"),
    [
        ("pellucid/config/settings.py", "import pellucid.look", "imports pellucid.look"),
        ("pellucid/model/heads.py", "def f():\n  from pellucid import search", ":2: imports pellucid.search"),
        ("pellucid/model/heads.py", "from ..cli import main", "imports pellucid.cli.main"),
        ("pellucid/data/tokenizers.py", "from pellucid.data.batches import Batch", "imports pellucid.data.batches"),
        ("pellucid/data/tokenizers.py", "from .batches import Batch", "imports pellucid.data.batches"),
        ("pellucid/data/tokenizers.py", "from pellucid.data import Batch", "imports pellucid.data.Batch"),
        ("pellucid/cli/main.py", "from pellucid import Network", "imports pellucid.Network"),
        (
            "pellucid/decoding/trace.py",
            "from pellucid.reporting.figures import f",
            "imports pellucid.reporting.figures",
        ),
        ("pellucid/decoding/trace.py", "def f():\n  from pellucid.viewer import saving", ":2: imports pellucid.viewer"),
        ("pellucid/training/model_card.py", "from pellucid import __version__", "imports pellucid.__version__"),
        ("pellucid/config/toml.py", "from pellucid.tasks.registry import task_of", "imports pellucid.tasks.registry"),
        ("pellucid/tasks/task_settings.py", "from pellucid.tasks import tag", "imports pellucid.tasks.tag"),
    ],
)
def test_imports_against_the_data_are_found(path: str, source: str, fault: str) -> None:
    assert fault in "\n".join(import_faults({path: source}))


def test_imports_with_the_data_are_no_fault() -> None:
    sources = {
        "pellucid/__init__.py": "from pellucid.cli import main",
        "pellucid/data/batches.py": "import torch\nfrom pellucid.data.tokenizers import END",
        "pellucid/data/__init__.py": "from pellucid.data.batches import Batch",
        "pellucid/training/model_card.py": "from pellucid.version import __version__",
        "pellucid/model/network.py": "from .heads import Head\nfrom pellucid.data import batches",
    }
    assert import_faults(sources) == order_faults(list(sources)) == []
    assert order_faults(["pellucid/misplaced.py", "pellucid/data/words.py"]) != []


def dynamic_imports(tree: ast.AST) -> Iterator[str]:
    """The beginning of each name that import_module is given, as far as it is written out: "pellucid.cli.", say.

    ValueError where nothing of a name is written out.
    """
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] == "import_module":
            name = node.args[0].values[0] if isinstance(node.args[0], ast.JoinedStr) else node.args[0]
            if not (isinstance(name, ast.Constant) and isinstance(name.value, str)):
                raise ValueError(f"{node.lineno}: import_module of a name that is not written out")
            yield name.value


def module_graph(sources: Mapping[str, str]) -> dict[str, set[str]]:
    """The modules that each module imports: inside functions, for types alone, and by import_module too."""
    graph: dict[str, set[str]] = {module_name(path): set() for path in sources}
    for path, source in sources.items():
        own, tree = module_name(path), ast.parse(source)
        for target, _, _ in imports(path, tree):
            while target and target not in graph:  # a name inside a module stands for the module
                target = target.rpartition(".")[0]
            graph[own] |= {target} - {own, ""}
        # The package loads its public names from a table; nothing imports the package, so that this closes no cycle.
        for start in [] if own == "pellucid" else dynamic_imports(tree):
            graph[own] |= {name for name in graph if name.startswith(start) and name != own}
    return graph


def cycles(graph: Mapping[str, set[str]]) -> list[list[str]]:
    """The modules that import each other, directly or not, a sorted list for each cycle."""
    reached: dict[str, set[str]] = {}
    for start in graph:
        found, waiting = set[str](), [start]
        while waiting:
            waiting += (new := graph[waiting.pop()] - found)
            found |= new
        reached[start] = found
    groups = {
        tuple(sorted(name for name in found if start in reached[name]))
        for start, found in reached.items()
        if start in found
    }
    return [list(group) for group in sorted(groups)]


def test_no_modules_import_each_other() -> None:
    graph = module_graph(SOURCES)
    assert cycles(graph) == []
    assert [name for name, targets in graph.items() if "pellucid" in targets] == []


@pytest.mark.parametrize(
    "back",
    [
        "import pellucid.b",
        "from pellucid import b",
        "def f():\n  from pellucid.b import name",
        "if TYPE_CHECKING:\n  from .b import name",
        "import_module(f'pellucid.{name}')",
        "importlib.import_module('pellucid.b')",
    ],
)
def test_cycles_are_found(back: str) -> None:
    sources = {"pellucid/a.py": back, "pellucid/b.py": "import pellucid.c", "pellucid/c.py": "from pellucid.a import d"}
    assert cycles(module_graph(sources)) == [["pellucid.a", "pellucid.b", "pellucid.c"]]
    sources["pellucid/c.py"] = "import torch"
    assert cycles(module_graph(sources)) == []


def test_a_computed_import_is_refused() -> None:
    with pytest.raises(ValueError, match="1: import_module"):
        module_graph({"pellucid/a.py": "import_module(name)"})


def test_what_needs_an_extra_is_imported_only_where_it_is_used() -> None:
    for path, source in SOURCES.items():
        early = [target for target, _, inside in imports(path, ast.parse(source)) if not inside]
        others = [name for name, extra in EXTRAS.items() if extra != EXTRAS.get(module_name(path))]
        found = [target for target in early if any(f"{target}.".startswith(f"{name}.") for name in others)]
        assert not found, f"{path} imports {found}"


def forbidden(path: str, tree: ast.AST) -> Iterator[str]:
    """What a file imports, or reaches by an attribute, and may not."""
    for name, line, _ in imports(path, tree):
        starts = [start for start in FORBIDDEN if f"{name}.".startswith(f"{start}.")]
        yield from (f"{path}:{line}: imports {start}: {FORBIDDEN[start]}" for start in starts)
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and ast.unparse(node) in FORBIDDEN:
            yield f"{path}:{node.lineno}: uses {ast.unparse(node)}: {FORBIDDEN[ast.unparse(node)]}"
        if isinstance(node, ast.keyword) and node.arg == "allow_pickle":
            yield f"{path}:{node.value.lineno}: uses allow_pickle"


def test_nothing_forbidden_is_imported() -> None:
    assert [fault for path, source in SOURCES.items() for fault in forbidden(path, ast.parse(source))] == []


@pytest.mark.parametrize(
    ("source", "fault"),
    [
        ("import pickle", "imports pickle"),
        ("def f():\n  from pickle import dumps", ":2: imports pickle"),
        ("from torch import load", "imports torch.load"),
        ("torch.save(x, y)", "uses torch.save"),
        ("numpy.load(x, allow_pickle=True)", "uses allow_pickle"),
        ("import matplotlib.pyplot as plt", "imports matplotlib.pyplot"),
        ("from matplotlib import pyplot", "imports matplotlib.pyplot"),
        ("from __future__ import annotations", "imports __future__.annotations"),
    ],
)
def test_forbidden_imports_are_found(source: str, fault: str) -> None:
    assert fault in "\n".join(forbidden("pellucid/files.py", ast.parse(source)))


def test_other_imports_are_no_fault() -> None:
    source = "import torch\nfrom matplotlib.figure import Figure\nfrom safetensors.torch import load\nmodel.load(x)"
    assert list(forbidden("pellucid/files.py", ast.parse(source))) == []


def test_importing_pellucid_imports_nothing_heavy() -> None:
    heavy = "{'torch', 'matplotlib', 'pyarrow', 'numba', 'triton'}"
    program = f"import sys, pellucid; print(*{heavy} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


def test_help_comes_at_once() -> None:
    """Processor seconds of the best of three runs: the clock on the wall also shows what else the machine does."""
    seconds = []
    for _ in range(3):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, "-m", "pellucid", "--help"], cwd=ROOT, capture_output=True, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        seconds.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    assert min(seconds) < 0.5


def test_every_module_can_be_imported() -> None:
    for module in pkgutil.walk_packages(pellucid.__path__, "pellucid."):
        extra = EXTRAS.get(module.name, "torch")
        if not module.name.endswith("__main__") and importlib.util.find_spec(extra):
            importlib.import_module(module.name)
