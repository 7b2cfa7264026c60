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
    *(
        "errors",
        "files",
        "processes",
        "config",
        "sizes",
        "agreement",
        "toml",
        "data",
        "kernels",
        "model",
        "search",
        "evaluation",
        "inspection",
        "training",
    ),
    *("look", "viewer", "api", "tuning", "recipes", "bench", "cli"),
)
"""The path of the data: a file imports from its own folder and from what stands before it here."""
DATA_ORDER = (
    *("subwords", "symbols", "lines", "columns", "formats", "faults", "examples", "vocabulary", "vectors", "batches"),
    *("copies", "answering", "corpus", "prefetching", "synthetic", "digits", "typos"),
)
"""The same for the files of data/, one by one."""
ALLOWANCES: Mapping[str, Mapping[str, str]] = {
    "pellucid/search/trace.py": {"pellucid.viewer": "a value knows how to show itself; imported when shown"},
}
"""Imports against the order, each with its reason, and only inside a function."""

EXTRAS = {"pellucid.kernels.gpu": "triton", "pellucid.tuning.study": "optuna", "pellucid.tuning.search": "optuna"}
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
    """pellucid/data/symbols.py → pellucid.data.symbols; a folder's __init__.py has the folder's name."""
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
    if first == "__version__":  # a constant of the package itself, which anyone may name
        return -1, -1
    within = DATA_ORDER.index(second) if first == "data" and second in DATA_ORDER else len(DATA_ORDER)
    return ORDER.index(first) if first in ORDER else len(ORDER), within


def is_below(path: str, target: str) -> bool:
    """Whether an import goes against the order. Files of other folders than data/ may import each other."""
    (own, own_file), (other, other_file) = place(module_name(path)), place(target)
    return other > own or (own == other and own_file <= other_file and own_file < len(DATA_ORDER))


def import_faults(sources: Mapping[str, str], allowances: Mapping[str, Mapping[str, str]]) -> list[str]:
    """Each import against the order, unless it is allowed, and each allowance that nothing uses."""
    faults, unused = [], {(path, target) for path, targets in allowances.items() for target in targets}
    for path, source in sources.items():
        for target, line, in_function in imports(path, ast.parse(source)):
            if target.split(".")[0] != "pellucid" or not is_below(path, target):
                continue
            allowed = {(path, start) for start in allowances.get(path, {}) if f"{target}.".startswith(f"{start}.")}
            unused -= allowed
            if not (allowed and in_function):
                faults.append(f"{path}:{line}: imports {target}, which stands below it")
    return faults + [f"{path}: does not use its allowance for {target}" for path, target in sorted(unused)]


def order_faults(paths: list[str]) -> list[str]:
    """Each file that has no place in the order."""
    found = []
    for path in paths:
        first, second = [*module_name(path).split(".")[1:], "", ""][:2]
        if first not in (*ORDER, "__main__", "") or (first == "data" and second not in (*DATA_ORDER, "")):
            found.append(f"{path}: give it a place in ORDER or DATA_ORDER")
    return found


def test_imports_follow_the_data() -> None:
    assert order_faults(list(SOURCES)) + import_faults(SOURCES, ALLOWANCES) == []


@pytest.mark.parametrize(
    ("path", "source", "fault"),
    [
        ("pellucid/config.py", "import pellucid.look", "imports pellucid.look"),
        ("pellucid/model/heads.py", "def f():\n  from pellucid import search", ":2: imports pellucid.search"),
        ("pellucid/model/heads.py", "from ..cli import main", "imports pellucid.cli.main"),
        ("pellucid/data/symbols.py", "from pellucid.data.batches import Batch", "imports pellucid.data.batches"),
        ("pellucid/data/symbols.py", "from .batches import Batch", "imports pellucid.data.batches"),
        ("pellucid/data/symbols.py", "from pellucid.data import Batch", "imports pellucid.data.Batch"),
        ("pellucid/cli/main.py", "from pellucid import Network", "imports pellucid.Network"),
        ("pellucid/search/trace.py", "from pellucid.look.page import f", "imports pellucid.look.page"),
        ("pellucid/search/trace.py", "import torch", "does not use its allowance for pellucid.look"),
    ],
)
def test_imports_against_the_data_are_found(path: str, source: str, fault: str) -> None:
    assert fault in "\n".join(import_faults({path: source}, {"pellucid/search/trace.py": {"pellucid.look": ""}}))


def test_imports_with_the_data_are_no_fault() -> None:
    allowances = {"pellucid/search/trace.py": {"pellucid.look": "shown"}}
    sources = {
        "pellucid/__init__.py": "from pellucid.cli import main",
        "pellucid/data/batches.py": "import torch\nfrom pellucid.data.symbols import END\nfrom pellucid import config",
        "pellucid/data/__init__.py": "from pellucid.data.batches import Batch",
        "pellucid/training/card.py": "from pellucid import __version__",
        "pellucid/model/network.py": "from .heads import Head\nfrom pellucid.data import batches",
        "pellucid/search/trace.py": "def show():\n  from pellucid.look.terminal import picture",
    }
    assert import_faults(sources, allowances) == order_faults(list(sources)) == []
    assert order_faults(["pellucid/misplaced.py", "pellucid/data/words.py"]) != []


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
