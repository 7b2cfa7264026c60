"""Classes have nouns as names, docstrings open with plain sentences, and the spelling is American."""

import ast
import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
Documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
NOUNS = {
    *("Batching", "Decoding", "Embedding", "Encoding", "Heading", "Mapping", "Masking", "Packing", "Padding", "Ragged"),
    *("Sampling", "Setting", "Sharding", "String", "Training", "Warning"),
}
"""Words that end like participles and are nouns of the field."""
NON_NOUNS = {
    *("Ahead", "Alone", "Apart", "Back", "Begun", "Beside", "Best", "Beyond", "Drawn", "First", "Found", "Given"),
    *("Heard", "Held", "How", "Kept", "Known", "Likely", "Likeliest", "Made", "Need", "Next", "Over", "Own", "Prompt"),
    *("Ran", "Read", "Ready", "Rest", "Seen", "Shown", "Sought", "Spot", "Taken", "Together", "Told", "Under", "What"),
    *("Who", "Wish", "Within", "Worth", "Written"),
}
"""Words that are unclear as class names."""
GERUNDS = {
    *("averaging", "batching", "caching", "decoding", "embedding", "encoding", "ensembling", "indexing", "logging"),
    *("masking", "packaging", "padding", "plotting", "prefetching", "preprocessing", "profiling", "reporting"),
    *("sampling", "scaling", "scheduling", "serving", "sharding", "streaming", "testing", "timing", "training"),
    "tuning",
}
"""Gerunds that name a subject of the field, and so a module."""
UNCLEAR_OPENING = re.compile(
    r"(What|Whether|Who|Whose|How|Where|Why|The same|Those|That which|It is|They are|Nothing|None of)\b"
)
UNUSUAL_WORDS = re.compile(
    r"\b(ln p|so many|stands? (in|for|beside|still)|tells? (how|what|its|of|where)|mend(s|ed)?|goes on|both[- ]ways"
    r"|likeliest|one dial|taken apart|comes? to an end|what became of)\b",
    re.IGNORECASE,
)
BRITISH_SPELLING = re.compile(
    r"(normal|optim|initial|regular|vector|visual|token|serial|summar)is(?!m|t)|learnt|colour|behaviour|neighbour|grey",
    re.IGNORECASE,
)


@cache
def trees() -> dict[str, ast.Module]:
    """Return the parsed modules of the package by their paths."""
    return {
        str(path.relative_to(ROOT)): ast.parse(path.read_text("utf-8"))
        for path in sorted((ROOT / "pellucid").rglob("*.py"))
    }


def nodes(*kinds: type[ast.AST]) -> Iterator[tuple[str, ast.AST]]:
    """Yield every node of these kinds with its location."""
    for path, tree in trees().items():
        for node in ast.walk(tree):
            if isinstance(node, kinds):
                yield f"{path}:{getattr(node, 'lineno', 1)}", node


def docstrings() -> Iterator[tuple[str, str]]:
    """Yield every docstring with its location."""
    for location, node in nodes(*Documented.__args__):
        assert isinstance(node, Documented)
        text = ast.get_docstring(node)
        if text:
            yield f"{location} {getattr(node, 'name', '')}", text


def class_names() -> list[tuple[str, str]]:
    """Return the name of every class with its location."""
    return [(location, node.name) for location, node in nodes(ast.ClassDef) if isinstance(node, ast.ClassDef)]


def is_participle(name: str) -> bool:
    """Return whether a class name is a single participle, adverb or pronoun."""
    if not re.fullmatch(r"[A-Z][a-z]+", name) or name in NOUNS:
        return False
    return name in NON_NOUNS or name.endswith("ing") or (name.endswith("ed") and not name.endswith(("eed", "Feed")))


def test_class_names_are_nouns() -> None:
    assert [f"{location} {name}" for location, name in class_names() if is_participle(name)] == []


def test_class_names_are_unique() -> None:
    counts = Counter(name for _, name in class_names())
    assert [name for name, count in counts.items() if count > 1] == []


def test_module_names_are_nouns() -> None:
    stems = {path: Path(path).stem for path in trees()}
    assert [path for path, stem in stems.items() if re.fullmatch("[a-z]+ing", stem) and stem not in GERUNDS] == []


def test_docstrings_open_with_a_plain_sentence() -> None:
    assert [
        f"{location}: {text.splitlines()[0]}" for location, text in docstrings() if UNCLEAR_OPENING.match(text)
    ] == []


def described_arguments(text: str) -> list[str]:
    """Return the names in the Args section of a docstring."""
    section = re.search(r"^Args:\n((?:    .*\n?|\n)+)", text, re.MULTILINE)
    return re.findall(r"^    (\*{0,2}\w+):", section[1], re.MULTILINE) if section else []


def list_arguments(function: ast.FunctionDef | ast.AsyncFunctionDef) -> list[str]:
    """Return the names of the arguments of a function, except self and cls."""
    arguments = function.args
    starred = [
        prefix + each.arg for prefix, each in (("*", arguments.vararg), ("**", arguments.kwarg)) if each is not None
    ]
    names = [each.arg for each in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)]
    return [name for name in (*names, *starred) if name not in ("self", "cls")]


def test_args_sections_name_every_argument() -> None:
    mismatches = list[str]()
    for location, node in nodes(ast.FunctionDef, ast.AsyncFunctionDef):
        assert isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        described = described_arguments(ast.get_docstring(node) or "")
        if described and sorted(described) != sorted(list_arguments(node)):
            mismatches.append(f"{location} {node.name}: {described}")
    assert mismatches == []


def test_docstrings_use_the_words_of_the_field() -> None:
    result = [(location, UNUSUAL_WORDS.search(text)) for location, text in docstrings()]
    assert [f"{location}: {match[0]}" for location, match in result if match] == []


def test_identifiers_have_american_spelling() -> None:
    names = [
        (location, node.target.id)
        for location, node in nodes(ast.AnnAssign)
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
    ]
    names += [(location, node.name) for location, node in nodes(ast.FunctionDef) if isinstance(node, ast.FunctionDef)]
    assert [f"{location} {name}" for location, name in [*names, *class_names()] if BRITISH_SPELLING.search(name)] == []


@pytest.mark.parametrize(
    "path", [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))], ids=lambda path: path.name
)
def test_guides_use_the_words_of_the_field(path: Path) -> None:
    if path.name == "log.md":
        pytest.skip("a diary of experiments")
    lines = enumerate(path.read_text("utf-8").splitlines(), 1)
    result = [(number, UNUSUAL_WORDS.search(line) or BRITISH_SPELLING.search(line)) for number, line in lines]
    assert [f"{path.name}:{number} {match[0]}" for number, match in result if match] == []
