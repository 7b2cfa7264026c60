"""Registration and entry points of classes and tasks of other packages, which all kinds of extensions share."""

import inspect
import re
from collections.abc import Callable, Collection
from dataclasses import replace
from importlib.metadata import EntryPoint
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar, NamedTuple

import pytest
import torch
from extension_pages import load_page_module
from torch import nn
from trained_runs import make_small_config, train_to_end, write_digit_files

import pellucid
from pellucid.config.attention_types import ATTENTION_TYPES
from pellucid.config.cell_types import CELL_TYPES
from pellucid.config.extensions import ExtensionRegistry, PackageVersion
from pellucid.config.settings import AttentionConfig
from pellucid.config.task_settings import TASKS
from pellucid.config.toml import override_settings, unused_extension_notes
from pellucid.config.training_types import CALLBACK_TYPES, METRIC_TYPES, OPTIMIZER_TYPES
from pellucid.errors import ArgumentError, ConfigError
from pellucid.evaluation.custom_metrics import Metric, RatioMetric, build_metric
from pellucid.model.attention import DotProductAttention, ScoredAttention, build_attention
from pellucid.model.cells import CellSpec, GRUSpec, get_cell_spec
from pellucid.tasks.registry import get_task
from pellucid.tasks.tag import TaggingTask
from pellucid.training.callbacks import build_callbacks
from pellucid.training.events import ModelBuilt
from pellucid.training.optimizer import build_optimizer
from pellucid.training.torch_optimizer import TorchOptimizer

CosineAttention = load_page_module("attention").CosineAttention
MinimalGatedUnit = load_page_module("cell").MinimalGatedUnit
PrefixAccuracy = load_page_module("metric").PrefixAccuracy
Lion = load_page_module("optimizer").Lion
ValidationTable = load_page_module("callback").ValidationTable


class DeclaredTask(TaggingTask):
    """Task of an entry point."""

    settings = replace(TaggingTask.settings, name="declared")


DECLARED_TASK, NUMBER = DeclaredTask(), 5
with_argument: dict[str, Any] = {"__init__": lambda self, size: None}


class RaisesMeta(type):
    """A class of classes whose attributes cannot be read."""

    def __getattribute__(cls, name: str) -> Any:  # noqa: ANN401 (as in Python)
        """Raise an error."""
        raise RuntimeError(name)


class Raises(metaclass=RaisesMeta):
    """A class whose attributes cannot be read."""


class Kind(NamedTuple):
    """A kind of extensions that are classes."""

    registry: ExtensionRegistry[Any]
    register: Callable[[str, Any], None]
    argument: str
    requirement: str
    """Beginning of the message about other classes."""
    example: str
    """Name of a class of this module."""
    wrong: Collection[object]
    """Further values that are refused."""
    load: Callable[[str], object]
    """Function that builds an object of a name, as a training does."""


def load_optimizer(name: str) -> object:
    """Return a new optimizer of the class of a name."""
    training = override_settings(make_small_config({}), {"training": {"optimizer": name}}).training
    optimizer = build_optimizer(nn.Linear(2, 1), training)
    assert isinstance(optimizer, TorchOptimizer)
    return optimizer.optimizer


def load_callback(name: str) -> object:
    """Return a new callback of the class of a name."""
    return build_callbacks(override_settings(make_small_config({}), {"training": {"callbacks": [name]}}))[name]


KINDS = {
    "attention type": Kind(
        ATTENTION_TYPES,
        pellucid.register_attention,
        "attention_class",
        r"a subclass of pellucid\.Attention that takes config, query_size and memory_size",
        "CosineAttention",
        (pellucid.Attention, ScoredAttention, DotProductAttention),
        lambda name: build_attention(AttentionConfig(type=name, size=4), 3, 3),
    ),
    "cell": Kind(
        CELL_TYPES,
        pellucid.register_cell,
        "cell_class",
        r"a subclass of pellucid\.CellSpec without arguments, with gates \(a tuple of different names\)",
        "MinimalGatedUnit",
        (
            CellSpec,
            *(type("NoGates", (GRUSpec,), {"gates": gates}) for gates in ((), ("r", "r", "n"), ("", "z", "n"), None)),
            type("WithArgument", (GRUSpec,), with_argument),
        ),
        get_cell_spec,
    ),
    "metric": Kind(
        METRIC_TYPES,
        pellucid.register_metric,
        "metric_class",
        r"a subclass of pellucid\.Metric or pellucid\.RatioMetric without arguments",
        "PrefixAccuracy",
        (
            *(Metric, RatioMetric, type("WithArgument", (PrefixAccuracy,), with_argument)),
            *(type("Wrong", (PrefixAccuracy,), {name: "1"}) for name in ("higher_is_better", "best_value")),
        ),
        build_metric,
    ),
    "optimizer": Kind(
        OPTIMIZER_TYPES,
        pellucid.register_optimizer,
        "optimizer_class",
        r"a subclass of torch\.optim\.Optimizer that takes params, lr and weight_decay",
        "Lion",
        (torch.optim.Optimizer, torch.optim.LBFGS, nn.Linear),
        load_optimizer,
    ),
    "callback": Kind(
        CALLBACK_TYPES,
        pellucid.register_callback,
        "callback_class",
        r"a class with the method on_event\(folder, event\), built without arguments",
        "ValidationTable",
        (
            *(pellucid.TrainingCallback, ValidationTable(), type("WithArgument", (ValidationTable,), with_argument)),
            type("OtherMethod", (), {"on_event": lambda self, event: None}),
        ),
        load_callback,
    ),
}
each_kind = pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
each_registry = pytest.mark.parametrize("registry", [*(kind.registry for kind in KINDS.values()), TASKS])


def register(kind: Kind, name: object, value: object) -> None:
    """Register a value of any type; the wrapper of the tests would check types first."""
    function: Callable[[object, object], None] = inspect.unwrap(kind.register)
    function(name, value)


@pytest.fixture(autouse=True)
def registries(monkeypatch: pytest.MonkeyPatch) -> None:
    """Remove registered and declared extensions for each test."""
    for registry in (*(kind.registry for kind in KINDS.values()), TASKS):
        for name in ("registered", "declared", "packages"):
            monkeypatch.setattr(registry, name, {})


@each_kind
def test_other_objects_are_not_registered(kind: Kind) -> None:
    for value in (None, 5, "x", object(), dict, pellucid.Task, Raises, *kind.wrong):
        with pytest.raises(ArgumentError, match=f"^{kind.argument}: expected {kind.requirement}"):
            register(kind, "mine", value)
    assert not kind.registry.registered


@each_kind
def test_built_in_names_and_invalid_names_are_refused(kind: Kind) -> None:
    extension = globals()[kind.example]
    for name in kind.registry.built_in:
        with pytest.raises(ConfigError, match=f"the name '{name}' belongs to a built-in {kind.registry.kind}"):
            register(kind, name, extension)
    names: list[object] = ["", "\ud800", "a\nb", "a/b", "x" * 101, None, 1, []]
    for invalid in names:
        with pytest.raises(ArgumentError, match=r"^name: expected"):
            register(kind, invalid, extension)
    register(kind, "x" * 100, extension)
    assert kind.registry.get("x" * 100) is extension


@each_kind
def test_entry_points_are_loaded_and_checked(kind: Kind, monkeypatch: pytest.MonkeyPatch) -> None:
    messages = {
        "number": f"the entry point .* does not provide the {kind.registry.kind} 'number'",
        "raises": "does not provide|is not a",
        "absent": f"the entry point .* of the {kind.registry.kind} 'absent' cannot be loaded",
        "missing": f"the entry point .* of the {kind.registry.kind} 'missing' cannot be loaded: No module named",
        "wrong": f"does not provide|the class of the {kind.registry.kind} 'wrong' is not {kind.requirement}",
    }
    values = {
        "declared": f"{__name__}:{kind.example}",
        "number": f"{__name__}:NUMBER",
        "raises": f"{__name__}:Raises",
        "absent": f"{__name__}:NOTHING",
        "missing": "no_such_package_of_anyone:Extension",
        "wrong": f"{__name__}:Kind",
    }
    entries = {name: (EntryPoint(name, value, kind.registry.group),) for name, value in values.items()}
    monkeypatch.setattr(kind.registry, "declared", entries)
    assert kind.registry.names() == (*kind.registry.built_in, *values)
    assert type(kind.load("declared")).__name__ == kind.example
    for name, message in messages.items():
        with pytest.raises(ConfigError, match=message):
            kind.load(name)
    with pytest.raises(ConfigError, match=f"unknown {kind.registry.kind} 'declaret': .*did you mean 'declared'"):
        kind.registry.get("declaret")


def declare(folder: Path, package: str, group: str, value: str, name: str = "declared") -> None:
    """Write the metadata of a package that declares an extension."""
    metadata = folder / f"{package.replace('-', '_')}-1.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1\n", "utf-8")
    (metadata / "entry_points.txt").write_text(f"[{group}]\n{name} = {value}\n", "utf-8")


@each_registry
def test_a_name_that_two_packages_declare_is_refused(
    registry: ExtensionRegistry[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    example = {kind.registry.group: kind.example for kind in KINDS.values()}.get(registry.group, "DECLARED_TASK")
    declare(tmp_path, "pkg-one", registry.group, f"{__name__}:{example}")
    declare(tmp_path, "pkg-two", registry.group, f"{__name__}:{example}")  # a package that was renamed
    monkeypatch.syspath_prepend(str(tmp_path))
    same = replace(registry, registered={}, packages={})
    assert same.get("declared") is globals()[example]
    declare(tmp_path, "pkg-zero", registry.group, f"{__name__}:NUMBER")
    monkeypatch.syspath_prepend(str(tmp_path))  # a changed folder is read again
    different = replace(registry, registered={}, packages={})
    assert "declared" in different and different.names().count("declared") == 1
    with pytest.raises(ConfigError) as refusal:
        different.get("declared")
    assert re.fullmatch(
        f"the {registry.kind} 'declared' is declared by pkg-(one|two) 1 \\('{__name__}:{example}'\\) and "
        f"pkg-zero 1 \\('{__name__}:NUMBER'\\): remove all but one of these packages, or call pellucid\\..* with the "
        "one to use",
        str(refusal.value),
    )
    different.register("declared", globals()[example])
    assert different.get("declared") is globals()[example]


@each_registry
def test_a_built_in_name_that_a_package_declares_has_a_note(
    registry: ExtensionRegistry[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, other = list(registry.built_in)[:2] if len(registry.built_in) > 1 else ("none", "none")
    declare(tmp_path, "pkg-one", registry.group, "my_module:Mine", name)
    monkeypatch.syspath_prepend(str(tmp_path))
    fresh = replace(registry, registered={}, packages={})
    assert list(fresh.names()) == list(registry.built_in) and name not in fresh.declared
    if name in registry.built_in:
        assert fresh.unused_note("section.key", name) == (
            f"section.key = '{name}' is the built-in {registry.kind}: the entry point of this name of pkg-one 1 "
            "('my_module:Mine') is not used; give it another name"
        )
        assert fresh.unused_note("section.key", other) == ""


def test_a_training_notes_a_built_in_name_that_a_package_declares(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    declare(tmp_path, "pkg-one", ATTENTION_TYPES.group, "my_module:Mine", "location")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(vars(ATTENTION_TYPES), "_entries", raising=False)
    notes = [
        unused_extension_notes(override_settings(make_small_config({}), {"attention": {"type": name}}))
        for name in ("location", "dot")
    ]
    monkeypatch.delitem(vars(ATTENTION_TYPES), "_entries")
    assert notes[0][0].startswith("attention.type = 'location' is the built-in attention type") and notes[1] == []
    files = write_digit_files(tmp_path)
    config = override_settings(make_small_config({"epochs": 1}), {"attention": {"type": "location"}})
    events = train_to_end(files, tmp_path / "run", config)
    assert [event.warnings for event in events if isinstance(event, ModelBuilt)] == [tuple(notes[0])]
    monkeypatch.delitem(vars(ATTENTION_TYPES), "_entries")


def test_a_task_that_is_declared_under_another_name_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    entries = {name: (EntryPoint(name, f"{__name__}:DECLARED_TASK", TASKS.group),) for name in ("declared", "other")}
    monkeypatch.setattr(TASKS, "declared", entries)
    assert get_task("declared") is DECLARED_TASK
    with pytest.raises(ConfigError, match=r"the entry point .* does not provide the task 'other'"):
        get_task("other")


class ClassVariables:
    """Properties of a class that is not an extension."""

    gates: ClassVar[tuple[str, ...]] = ("a",)
    has_cell_state: ClassVar[bool] = False
    has_weights: ClassVar[bool] = True
    uses_softmax: ClassVar[bool] = True
    higher_is_better: ClassVar[bool] = True

    def on_event(self) -> None:
        """Do nothing."""


@each_kind
def test_classes_that_only_have_the_properties_are_refused(kind: Kind, monkeypatch: pytest.MonkeyPatch) -> None:
    entry = EntryPoint("similar", f"{__name__}:ClassVariables", kind.registry.group)
    monkeypatch.setattr(kind.registry, "declared", {"similar": (entry,)})
    with pytest.raises(ConfigError, match=f"the class of the {kind.registry.kind} 'similar' is not {kind.requirement}"):
        kind.load("similar")


def test_a_class_that_is_registered_again_has_its_own_package(monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression test: the package of the former class was recorded."""
    packages = {"first_module": PackageVersion("first", "1"), "second_module": PackageVersion("second", "2")}
    monkeypatch.setattr(
        ExtensionRegistry, "_search_package", lambda registry, name: packages[registry.get(name).origin]
    )
    for origin, package in packages.items():
        ATTENTION_TYPES.register("mine", SimpleNamespace(origin=origin))
        assert ATTENTION_TYPES.find_package("mine") == package
