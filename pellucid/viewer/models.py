"""The runs that a page is about."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pellucid.config import Device
from pellucid.errors import InputError, RunError
from pellucid.model.network import parameter_count
from pellucid.search.ensemble import Ensemble
from pellucid.search.transducer import Transducer
from pellucid.toml import load_config, to_toml
from pellucid.training.card import architecture
from pellucid.training.run import CONFIG, MODEL, load, members, read_log
from pellucid.viewer.contents import Card


@dataclass(frozen=True)
class Model:
    """A run, or an ensemble of runs."""

    name: str
    folder: Path
    transducer: Transducer | None
    """None while its training has not reached a first validation."""

    @property
    def ready(self) -> Transducer:
        """What decodes; `RunError` where there is nothing yet."""
        if self.transducer is None:
            raise RunError(f"{self.folder} holds no model yet: its training has not reached a first validation")
        return self.transducer

    @property
    def alone(self) -> bool:
        """Whether it is one network that writes symbol by symbol: its states can be seen."""
        return self.transducer is not None and not isinstance(self.transducer, Ensemble)


def open_model(folder: Path, name: str, device: Device, beam: int | None) -> Model:
    """A run of a folder, searching as wide as is asked for; `InputError` for what is no run."""
    unfinished = (folder / CONFIG).exists() and not (folder / MODEL).exists() and members(folder) == [folder]
    if unfinished:
        return Model(name, folder, None)
    transducer = load(folder, device)
    return Model(name, folder, transducer if beam is None else transducer.with_beam(beam))


def names_of(folders: Sequence[Path]) -> list[str]:
    """A short name for each: that of its folder, or the whole path where two have one name."""
    short = [folder.resolve().name for folder in folders]
    return short if len(set(short)) == len(short) else [str(folder) for folder in folders]


def own_file(model: Model) -> Path | None:
    """The development file that a run was trained with, if it is where it was and can be read alone."""
    read = [record for record in read_log(model.folder) if record["event"] == "read"]
    if len(read) < 2 or load_config(model.folder / CONFIG).data.format == "text":
        return None
    path = Path(str(read[1].get("path", "")))
    return path if path.is_file() else None


def card(model: Model) -> Card:
    """What a run's model is."""
    log = read_log(model.folder)
    if model.transducer is None:
        config, facts = load_config(model.folder / CONFIG), list[tuple[str, str]]()
    else:
        config, facts = model.transducer.config, _sizes(model, model.transducer)
    told = [("model", architecture(config)), *facts, *_course(log), ("seed", f"{config.seed}")]
    attends = config.attention.score != "none" and config.task != "tag"
    return Card(name=model.name, facts=told, config=to_toml(config), attends=attends, task=config.task)


def _sizes(model: Model, transducer: Transducer) -> list[tuple[str, str]]:
    """Numbers of parameters and symbols."""
    vocabularies, count = transducer.vocabularies, len(members(model.folder))
    each = " each" if count > 1 else ""
    return [
        *([("ensemble", f"{count} networks")] if count > 1 else []),
        ("parameters", f"{parameter_count(transducer.network):,}{each}"),
        ("source symbols", f"{len(vocabularies.source.symbols):,}"),
        ("target symbols", f"{len(vocabularies.target.symbols):,}"),
        *([("search", _search(transducer.config.search.beam_width))] if transducer.config.task == "transduce" else []),
    ]


def _search(width: int) -> str:
    """How outputs are found."""
    return "greedy" if width == 1 else f"beam of {width}"


def _course(log: Sequence[dict[str, Any]]) -> list[tuple[str, str]]:
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
        scores = f"exact match {best[-1]['exact_match']:.2f} % at update {best[-1]['update']:,}"
        facts.append(("best validation", scores))
    return facts


def chosen(models: Sequence[Model], rival: int) -> Model:
    """The run that is asked: −1 the first, else a place among its rivals; `InputError` for one that is not there."""
    if not -1 <= rival < len(models) - 1:
        raise InputError(f"rival: expected −1 to {len(models) - 2}, got {rival}")
    return models[rival + 1]
