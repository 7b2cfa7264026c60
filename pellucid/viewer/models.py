"""The runs that a page is about."""

from collections.abc import Sequence
from dataclasses import dataclass
from os.path import isfile
from pathlib import Path
from typing import Any

from pellucid.config import Device
from pellucid.errors import InputError, RunError, quote
from pellucid.files import is_there
from pellucid.model.network import parameter_count
from pellucid.search.predictor import Predictor
from pellucid.tasks.registry import task_of
from pellucid.tasks.task import Task
from pellucid.toml import load_config, to_toml
from pellucid.training.run import CONFIG, MODEL, damage_told, has_stopped, load, members, read_log
from pellucid.viewer.contents import Card


@dataclass(frozen=True)
class Model:
    """A run, or an ensemble of runs."""

    name: str
    folder: Path
    transducer: Predictor | None
    """None while its training has not reached a first validation."""

    @property
    def ready(self) -> Predictor:
        """What decodes; `RunError` where there is nothing yet."""
        if self.transducer is None:
            raise RunError(f"{self.folder} holds no model yet: its training has not reached a first validation")
        return self.transducer

    @property
    def alone(self) -> bool:
        """Whether it is one network that writes symbol by symbol: its states can be seen."""
        return self.transducer is not None and self.transducer.autoregressive and not self.transducer.is_ensemble


def open_model(folder: Path, name: str, device: Device, beam: int | None) -> Model:
    """A run of a folder, searching as wide as is asked for; `InputError` for what is no run."""
    if _begun(folder):
        return Model(name, folder, None)
    transducer = load(folder, device)
    return Model(name, folder, transducer if beam is None else transducer.with_beam(beam))


def _begun(folder: Path) -> bool:
    """Whether a training goes on here that has no model yet; one that is over without a model is broken."""
    here = is_there(folder / CONFIG) and not is_there(folder / MODEL) and members(folder) == [folder]
    return here and not has_stopped(read_log(folder))


def names_of(folders: Sequence[Path]) -> list[str]:
    """A short name for each: that of its folder, the whole path where two have one name; one folder's are numbered."""
    short = [folder.resolve().name for folder in folders]
    names = short if len(set(short)) == len(short) else [str(folder) for folder in folders]
    before = [names[:at].count(name) for at, name in enumerate(names)]
    return [f"{name} ({times + 1})" if times else name for name, times in zip(names, before, strict=True)]


def own_file(run: Path) -> tuple[Path, Path | None] | None:
    """The development file that a run was trained with, and that of its targets, if they are where they were.

    Of an ensemble, those of its first member.
    """
    folder = members(run)[0]
    read = [record for record in read_log(folder) if record["event"] == "read"]
    if len(read) < 2:
        return None
    path, target = Path(str(read[1].get("path", ""))), read[1].get("target")
    if target is None and load_config(folder / CONFIG).data.format == "text":
        return None
    beside = None if target is None else Path(str(target))
    # isfile, unlike is_file, takes any name: the log may be a stranger's.
    return (path, beside) if isfile(path) and (beside is None or isfile(beside)) else None


def card(model: Model) -> Card:
    """What a run's model is."""
    log = read_log(model.folder)
    if model.transducer is None:
        config, facts = load_config(model.folder / CONFIG), list[tuple[str, str]]()
    else:
        config, facts = model.transducer.config, _sizes(model, model.transducer)
    task = task_of(config)
    told = [("model", task.architecture(config)), *facts, *_course(log, task), ("seed", f"{config.seed}")]
    told += [("log", sentence) for sentence in damage_told(model.folder)]
    attends = config.attention.score != "none" and not task.settings.per_position
    return Card(name=model.name, facts=told, config=to_toml(config), attends=attends, task=config.task)


def _sizes(model: Model, transducer: Predictor) -> list[tuple[str, str]]:
    """Numbers of parameters and symbols."""
    vocabularies, count = transducer.vocabularies, len(members(model.folder))
    each = " each" if count > 1 else ""
    return [
        *([("ensemble", f"{count} networks")] if count > 1 else []),
        ("parameters", f"{parameter_count(transducer.network):,}{each}"),
        ("source symbols", f"{len(vocabularies.source.symbols):,}"),
        ("target symbols", f"{len(vocabularies.target.symbols):,}"),
        *([("search", _search(transducer.config.search.beam_width))] if transducer.autoregressive else []),
    ]


def _search(width: int) -> str:
    """How outputs are found."""
    return "greedy" if width == 1 else f"beam of {width}"


def _course(log: Sequence[dict[str, Any]], task: Task) -> list[tuple[str, str]]:
    """What the log tells of data and training."""
    read = [record for record in log if record["event"] == "read"]
    counted = [record for record in log if "update" in record]
    best = [record for record in log if record["event"] == "validated" and record["best"]]
    facts = []
    if read:
        facts.append(("trained on", f"{read[0].get('examples', 0):,} examples"))
    if counted:
        last = counted[-1]
        facts.append(("training", f"{last['update']:,} updates, {last['samples']:,} samples, {last['seconds']:,.0f} s"))
    if best:
        name, key = task.labels.best_score
        scores = f"{name} {best[-1][key]:.2f} % at update {best[-1]['update']:,}"
        facts.append(("best validation", scores))
    return facts


def check_tasks(models: Sequence[Model]) -> None:
    """`InputError` where runs have different tasks: their answers and their scores do not compare."""
    first, *others = [(each.name, _task(each)) for each in models]
    for name, task in others:
        if task != first[1]:
            raise InputError(
                f"runs of one task can be compared: that of {first[0]} is {quote(first[1])}, of {name} {quote(task)}"
            )


def _task(model: Model) -> str:
    """What the run was trained to do; known before it has a model."""
    return (load_config(model.folder / CONFIG) if model.transducer is None else model.transducer.config).task


def chosen(models: Sequence[Model], rival: int) -> Model:
    """The run that is asked: −1 the first, else a place among its rivals; `InputError` for one that is not there."""
    if rival != -1 and len(models) == 1:
        raise InputError(f"rival: the page shows one run alone: expected −1, got {quote(rival)}")
    if not -1 <= rival < len(models) - 1:
        raise InputError(f"rival: expected −1 to {len(models) - 2}, got {quote(rival)}")
    return models[rival + 1]
