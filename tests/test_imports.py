"""Rules on imports: the order of modules, cycles, forbidden modules, and the cost of an import."""

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
        "version",
        "shapes",
        "errors",
        "dependencies",
        "error_messages",
        "argument_checks",
        "file_lock",
        "files",
        "folder_lock",
        "row_file",
        "record_file",
        "limits",
        "process_limits",
        "launched_workers",
        "worker_pool",
        "http_requests",
        "cluster",
    ),
    *("config.settings", "config.renamed_settings", "config.presets", "config.extensions", "config.attention_types"),
    "config.cell_types",
    *("config.training_types", "config.task_settings", "config"),
    "config.extension_errors",
    *(
        "data",
        "kernels",
        "alignment",
        "pair_ngram",
        "model",
        "decoding",
        "evaluation",
        "tasks",
        "run_folder",
        "runtime",
        "inspection",
    ),
    *(
        "training",
        "reporting",
        "viewer",
        "serving",
        "auditing",
        "run_evaluation",
        "api",
        "sklearn",
        "export",
        "sharing",
        "tuning",
        "recipes",
        "bench",
        "cli",
    ),
)
"""Order of folders and modules: a file imports only from its own folder and from entries before its own."""
DATA_ORDER = (
    *(
        "text_words",
        "context",
        "ipa_phones",
        "normalization",
        "tokenizers",
        "lines",
        "headers",
        "csv_parser",
        "delimiters",
        "readers",
        "in_memory",
        "examples",
        "validation_split",
        "file_split",
    ),
    *(
        "vocabulary",
        "vectors",
        "encoding",
        "characters",
        "batches",
        "extended_vocabulary",
        "target_vocabularies",
        "corpus",
        "prepared_data",
        "size_choice",
        "batch_loaders",
        "synthetic",
    ),
)
"""Order of the files of data/."""
EXTRAS = {
    **dict.fromkeys(
        ["pellucid.export.onnx_graph", "pellucid.export.onnx_encoder", "pellucid.export.onnx_decoder"], "onnx"
    ),
    "pellucid.export.beam_search": "onnxruntime",
    "pellucid.kernels.triton_attention": "triton",
    "pellucid.sklearn": "sklearn",
    **dict.fromkeys(
        [f"pellucid.tuning.{name}" for name in ("storage", "database", "study", "results", "search")], "optuna"
    ),
}
"""Modules that need optional dependencies; other modules import them only inside functions."""

FORBIDDEN_IMPORTS = {
    **dict.fromkeys(["pickle", "dill", "cloudpickle", "joblib", "shelve"], "a run folder holds no code"),
    **dict.fromkeys(["torch.save", "torch.load"], "it is pickle within"),
    **dict.fromkeys(["matplotlib.pyplot", "pylab"], "it draws on global state; use Figure"),
    "__future__.annotations": "shapes are checked from the annotations themselves",
}


class Import(NamedTuple):
    """Dotted name of an imported module or object, and the place of the import."""

    target: str
    line: int
    in_function: bool


def module_name(path: str) -> str:
    """Return the name of a module, pellucid.data.tokenizers for pellucid/data/tokenizers.py."""
    return path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def find_imports(path: str, tree: ast.AST) -> Iterator[Import]:
    """Yield all imports of a file, at any level; the target of "from a import b" is "a.b"."""
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    type_blocks = [
        node for node in ast.walk(tree) if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
    ]
    nested = {id(node) for block in (*functions, *type_blocks) for node in ast.walk(block)}
    folder = module_name(path) if path.endswith("__init__.py") else module_name(path).rpartition(".")[0]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            targets = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = importlib.util.resolve_name("." * node.level + (node.module or ""), folder)
            targets = [f"{base}.{alias.name}" for alias in node.names]
        else:
            continue
        yield from (Import(target, node.lineno, id(node) in nested) for target in targets)


def order_position(module: str) -> tuple[int, int]:
    """Return the positions of a module, or of the module of a name, in ORDER and in DATA_ORDER."""
    first, second = [*module.split(".")[1:], "", ""][:2]
    data_position = DATA_ORDER.index(second) if first == "data" and second in DATA_ORDER else len(DATA_ORDER)
    entry = f"{first}.{second}" if f"{first}.{second}" in ORDER else first
    return ORDER.index(entry) if entry in ORDER else len(ORDER), data_position


def is_below(path: str, target: str) -> bool:
    """Return whether an import is against the order. Files of one folder may import each other, except in data/."""
    (importer, importer_file), (imported, imported_file) = order_position(module_name(path)), order_position(target)
    return imported > importer or (
        importer == imported and importer_file <= imported_file and importer_file < len(DATA_ORDER)
    )


def find_import_faults(sources: Mapping[str, str]) -> list[str]:
    """Return all imports against the order, at any level. The module `pellucid` itself may import all others."""
    faults = []
    for path, source in sources.items():
        for target, line, _ in find_imports(path, ast.parse(source)):
            if module_name(path) != "pellucid" and target.split(".")[0] == "pellucid" and is_below(path, target):
                faults.append(f"{path}:{line}: imports {target}, which stands below it")
    return faults


def find_unordered_files(paths: list[str]) -> list[str]:
    """Return the files that have no position in the order."""
    faults = []
    for path in paths:
        first, second = [*module_name(path).split(".")[1:], "", ""][:2]
        if first not in (*ORDER, "__main__", "") or (first == "data" and second not in (*DATA_ORDER, "")):
            faults.append(f"{path}: give it a place in ORDER or DATA_ORDER")
    return faults


def test_imports_follow_the_order() -> None:
    assert find_unordered_files(list(SOURCES)) + find_import_faults(SOURCES) == []


@pytest.mark.parametrize(
    ("path", "source", "fault"),
    [
        ("pellucid/config/settings.py", "import pellucid.look", "imports pellucid.look"),
        ("pellucid/model/output_layers.py", "def f():\n  from pellucid import search", ":2: imports pellucid.search"),
        ("pellucid/model/output_layers.py", "from ..cli import main", "imports pellucid.cli.main"),
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
        ("pellucid/config/task_settings.py", "from pellucid.tasks import tag", "imports pellucid.tasks.tag"),
    ],
)
def test_imports_against_the_order_are_detected(path: str, source: str, fault: str) -> None:
    assert fault in "\n".join(find_import_faults({path: source}))


def test_imports_along_the_order_are_accepted() -> None:
    sources = {
        "pellucid/__init__.py": "from pellucid.cli import main",
        "pellucid/data/batches.py": "import torch\nfrom pellucid.data.tokenizers import END",
        "pellucid/data/__init__.py": "from pellucid.data.batches import Batch",
        "pellucid/training/model_card.py": "from pellucid.version import __version__",
        "pellucid/model/network.py": "from .output_layers import OutputLayer\nfrom pellucid.data import batches",
    }
    assert find_import_faults(sources) == find_unordered_files(list(sources)) == []
    assert find_unordered_files(["pellucid/misplaced.py", "pellucid/data/words.py"]) != []


def find_dynamic_imports(tree: ast.AST) -> Iterator[str]:
    """Yield the literal prefix, such as "pellucid.cli.", of each name given to `import_module`.

    Raises:
        ValueError: A name has no literal prefix.
    """
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] == "import_module":
            name = node.args[0].values[0] if isinstance(node.args[0], ast.JoinedStr) else node.args[0]
            if not (isinstance(name, ast.Constant) and isinstance(name.value, str)):
                raise ValueError(f"{node.lineno}: import_module of a name that is not written out")
            yield name.value


def build_module_graph(sources: Mapping[str, str]) -> dict[str, set[str]]:
    """Return the modules that each module imports, also inside functions, for types, and with `import_module`."""
    graph: dict[str, set[str]] = {module_name(path): set() for path in sources}
    for path, source in sources.items():
        module, tree = module_name(path), ast.parse(source)
        for target, _, _ in find_imports(path, tree):
            while target and target not in graph:  # a name inside a module counts as the module
                target = target.rpartition(".")[0]
            graph[module] |= {target} - {module, ""}
        # The package loads its public names from a table. No module imports the package, so this closes no cycle.
        for prefix in [] if module == "pellucid" else find_dynamic_imports(tree):
            graph[module] |= {name for name in graph if name.startswith(prefix) and name != module}
    return graph


def find_cycles(graph: Mapping[str, set[str]]) -> list[list[str]]:
    """Return each group of modules that import each other, directly or indirectly, as a sorted list."""
    reached: dict[str, set[str]] = {}
    for start in graph:
        reachable_modules, queue = set[str](), [start]
        while queue:
            queue += (new := graph[queue.pop()] - reachable_modules)
            reachable_modules |= new
        reached[start] = reachable_modules
    groups = {
        tuple(sorted(name for name in reachable_modules if start in reached[name]))
        for start, reachable_modules in reached.items()
        if start in reachable_modules
    }
    return [list(group) for group in sorted(groups)]


@pytest.mark.slow
def test_no_modules_form_an_import_cycle() -> None:
    graph = build_module_graph(SOURCES)
    assert find_cycles(graph) == []
    assert [name for name, targets in graph.items() if "pellucid" in targets] == []


@pytest.mark.parametrize(
    "first_source",
    [
        "import pellucid.b",
        "from pellucid import b",
        "def f():\n  from pellucid.b import name",
        "if TYPE_CHECKING:\n  from .b import name",
        "import_module(f'pellucid.{name}')",
        "importlib.import_module('pellucid.b')",
    ],
)
def test_import_cycles_are_detected(first_source: str) -> None:
    sources = {
        "pellucid/a.py": first_source,
        "pellucid/b.py": "import pellucid.c",
        "pellucid/c.py": "from pellucid.a import d",
    }
    assert find_cycles(build_module_graph(sources)) == [["pellucid.a", "pellucid.b", "pellucid.c"]]
    sources["pellucid/c.py"] = "import torch"
    assert find_cycles(build_module_graph(sources)) == []


def test_a_computed_import_is_refused() -> None:
    with pytest.raises(ValueError, match="1: import_module"):
        build_module_graph({"pellucid/a.py": "import_module(name)"})


def test_modules_that_need_extras_are_imported_only_inside_functions() -> None:
    for path, source in SOURCES.items():
        top_level = [target for target, _, inside in find_imports(path, ast.parse(source)) if not inside]
        others = [name for name, extra in EXTRAS.items() if extra != EXTRAS.get(module_name(path))]
        unguarded = [target for target in top_level if any(f"{target}.".startswith(f"{name}.") for name in others)]
        assert not unguarded, f"{path} imports {unguarded}"


def find_forbidden_imports(path: str, tree: ast.AST) -> Iterator[str]:
    """Yield the forbidden imports and attributes of a file."""
    for name, line, _ in find_imports(path, tree):
        starts = [start for start in FORBIDDEN_IMPORTS if f"{name}.".startswith(f"{start}.")]
        yield from (f"{path}:{line}: imports {start}: {FORBIDDEN_IMPORTS[start]}" for start in starts)
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and ast.unparse(node) in FORBIDDEN_IMPORTS:
            yield f"{path}:{node.lineno}: uses {ast.unparse(node)}: {FORBIDDEN_IMPORTS[ast.unparse(node)]}"
        if isinstance(node, ast.keyword) and node.arg == "allow_pickle":
            yield f"{path}:{node.value.lineno}: uses allow_pickle"


@pytest.mark.slow
def test_nothing_forbidden_is_imported() -> None:
    assert [
        fault for path, source in SOURCES.items() for fault in find_forbidden_imports(path, ast.parse(source))
    ] == []


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
def test_forbidden_imports_are_detected(source: str, fault: str) -> None:
    assert fault in "\n".join(find_forbidden_imports("pellucid/files.py", ast.parse(source)))


def test_other_imports_are_accepted() -> None:
    source = "import torch\nfrom matplotlib.figure import Figure\nfrom safetensors.torch import load\nmodel.load(x)"
    assert list(find_forbidden_imports("pellucid/files.py", ast.parse(source))) == []


def test_importing_pellucid_imports_no_large_library() -> None:
    large_libraries = "{'torch', 'matplotlib', 'pyarrow', 'numba', 'triton'}"
    program = f"import sys, pellucid; print(*{large_libraries} & set(sys.modules))"
    result = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert result.stdout.split() == []


def test_help_takes_half_a_cpu_second_at_most() -> None:
    """The fastest of three runs counts; CPU time depends less than wall-clock time on other processes."""
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
