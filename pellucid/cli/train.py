"""pellucid train TRAIN --dev DEV --run DIR [--config FILE] [flags]"""

import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
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
    Threads,
    TrainingConfig,
)
from pellucid.toml import checked, from_settings, load_config


@dataclass(frozen=True)
class Arguments:
    """Train a model on pairs of sequences, or go on with an unfinished training.

    Settings come from the preset of --size, then from the TOML file of --config, then from flags. A run folder that
    holds an unfinished training of the same configuration and data is resumed, to the very same bits.
    """

    train: tyro.conf.Positional[Path]
    """Training pairs: TSV, CSV, JSON lines or Parquet (also .gz), or the sources of two parallel files."""
    dev: Path
    """Pairs to judge by, none of which is trained on."""
    run: Path
    """Folder of the run; created, or resumed."""
    size: Size
    """The one dial: sets every size that is not set by itself."""
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
    train_target: Path | None = None
    """The targets of TRAIN, line by line, where they are in a file of their own."""
    dev_target: Path | None = None
    """The targets of --dev, likewise."""
    config: Path | None = None
    """TOML file of settings."""


class Interruption:
    """The first Ctrl-C asks for an end after the update in hand; the second ends at once."""

    def __init__(self) -> None:
        """Nothing asked yet."""
        self.asked = False
        self.training = False
        """Whether there is an update in hand, which is worth ending well."""

    def ask(self, signal_number: int, frame: FrameType | None) -> None:
        """Handle the signal."""
        if self.asked or not self.training:
            raise KeyboardInterrupt
        self.asked = True
        print("pellucid: stopping after this update (Ctrl-C again to stop at once)", file=sys.stderr)


def run(arguments: list[str]) -> int:
    """Train, telling how it goes on standard error."""
    given = parse(arguments)
    # Only now, when the arguments are known to be right, what takes seconds to import.
    from pellucid.look.progress import shown
    from pellucid.training.loop import Started, Stopped
    from pellucid.training.session import Files, train_run

    config = checked(
        Config(
            size=given.size,
            seed=given.seed,
            threads=given.threads,
            device=given.device,
            precision=given.precision,
            deterministic=given.deterministic,
            graphs=given.graphs,
            data=given.data,
            encoder=given.encoder,
            attention=given.attention,
            decoder=given.decoder,
            training=given.training,
            search=given.search,
        )
    )
    interruption = Interruption()
    previous = signal.signal(signal.SIGINT, interruption.ask)
    events = train_run(Files(given.train, given.dev, given.train_target, given.dev_target), given.run, config)
    try:
        with shown() as teller:
            for event in events:
                teller.tell(event)
                interruption.training = interruption.training or isinstance(event, Started)
                if interruption.asked and not isinstance(event, Stopped):
                    events.close()
                    print(f"pellucid: interrupted; the same command goes on from here ({given.run})", file=sys.stderr)
                    return 130
    finally:
        signal.signal(signal.SIGINT, previous)
    return 0


def parse(arguments: Sequence[str]) -> Arguments:
    """Flags over a TOML file over a preset."""
    size, file = _value(arguments, "--size"), _value(arguments, "--config")
    overrides = {"size": size} if size is not None else {}
    base = load_config(Path(file), overrides) if file is not None else from_settings(overrides, origin="flags")
    required: Any = tyro.MISSING
    defaults = Arguments(
        train=required,
        dev=required,
        run=required,
        size=base.size,
        seed=base.seed,
        threads=base.threads,
        device=base.device,
        precision=base.precision,
        deterministic=base.deterministic,
        graphs=base.graphs,
        data=base.data,
        encoder=base.encoder,
        attention=base.attention,
        decoder=base.decoder,
        training=base.training,
        search=base.search,
    )
    return tyro.cli(Arguments, prog="pellucid train", args=arguments, default=defaults)


def _value(arguments: Sequence[str], flag: str) -> str | None:
    """The value of a flag that decides the defaults of all others, found before they are parsed."""
    for at, argument in enumerate(arguments):
        if argument == flag and at + 1 < len(arguments):
            return arguments[at + 1]
        if argument.startswith(f"{flag}="):
            return argument.removeprefix(f"{flag}=")
    return None
