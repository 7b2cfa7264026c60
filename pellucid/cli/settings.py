"""The settings of a training as flags: over a TOML file, over the preset of a size."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any

import tyro

from pellucid.config import (
    AttentionConfig,
    Config,
    DataConfig,
    DecoderConfig,
    Device,
    EncoderConfig,
    Precision,
    SearchConfig,
    Seed,
    Size,
    Task,
    Threads,
    TrainingConfig,
)
from pellucid.toml import checked, choices_of, from_settings, load_config


@dataclass(frozen=True, kw_only=True)
class SettingFlags:
    """A flag for each setting."""

    size: Size
    """The one dial: sets every size that is not set by itself."""
    task: Task
    """What a target is: a sequence to write, a tag for each source symbol, the source's class, or a place in it."""
    seed: Seed
    """Seed of initial parameters, batch order and dropout."""
    threads: Threads
    """Threads of computation; 0 takes one for each core."""
    device: Device
    """What trains: cpu, cuda (one GPU), or auto, which takes a GPU where there is one."""
    precision: Precision
    """Arithmetic of training: float32, or bf16 for the products of an update (on a GPU only)."""
    deterministic: bool
    """On a GPU, take only algorithms that give the same bits each time; a processor always does."""
    graphs: bool
    """On a GPU, record an update once for each shape of batch and replay it (CUDA graphs)."""
    data: Annotated[DataConfig, tyro.conf.arg(name="")]
    encoder: EncoderConfig
    attention: AttentionConfig
    decoder: DecoderConfig
    training: TrainingConfig
    search: SearchConfig
    config: Path | None = None
    """TOML file of settings."""


def config_of(given: SettingFlags) -> Config:
    """The configuration that the flags describe; `ConfigError` where they contradict each other."""
    names = [field.name for field in fields(SettingFlags) if field.name != "config"]
    return checked(Config(**{name: getattr(given, name) for name in names}))


def defaults_of(arguments: Sequence[str]) -> dict[str, Any]:
    """What the flags start from: the file of --config over the preset of --size and what --task sets."""
    file, told = _value(arguments, "--config"), {name: _value(arguments, f"--{name}") for name in ("size", "task")}
    # What is no size and no task is told of when the flags are read.
    overrides = {name: told[name] for name, kind in (("size", Size), ("task", Task)) if told[name] in choices_of(kind)}
    base = (
        load_config(Path(file), overrides, regular=False)
        if file is not None
        else from_settings(overrides, origin="flags")
    )
    return {field.name: getattr(base, field.name) for field in fields(SettingFlags) if field.name != "config"}


def _value(arguments: Sequence[str], flag: str) -> str | None:
    """The value of a flag that decides the defaults of all others, found before they are parsed."""
    for at, argument in enumerate(arguments):
        if argument == flag and at + 1 < len(arguments):
            return arguments[at + 1]
        if argument.startswith(f"{flag}="):
            return argument.removeprefix(f"{flag}=")
    return None
