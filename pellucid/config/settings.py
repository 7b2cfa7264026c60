"""Every setting of Pellucid: one frozen struct per stage, and one dial (`size`) above full control.

A `Config` is complete: the preset of its size, overlaid by a TOML file, overlaid by flags. It is saved with the run
and read back from there, so a model never depends on how it was started.
"""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

Size = Literal["tiny", "small", "base", "large"]
Task = Annotated[str, Meta(title="task")]
"""Name of a task: transduce, tag, classify, point, or one that is registered (tasks/task_settings.py)."""
DEFAULT_TASK: Task = "transduce"
Cell = Literal["gru", "lstm"]
Format = Literal["auto", "tsv", "csv", "jsonl", "parquet", "text"]
Header = bool | Literal["auto"]
Embedding = Literal["learnt", "frozen", "one-hot"]
Feedback = Literal["learnt", "frozen", "one-hot", "none"]
Normalisation = Literal["none", "nfc", "nfd"]
Device = Literal["auto", "cpu", "cuda"]
Precision = Literal["float32", "bf16"]
LayerNormalisation = Literal["none", "outputs", "cells"]
DropoutMask = Literal["step", "sequence"]
RecurrentDropout = Literal["weights", "states"]
Schedule = Literal["none", "linear", "exponential", "inverse-sigmoid"]
Metric = Literal["exact_match", "symbol_error_rate", "symbol_accuracy", "loss"]
Count = Annotated[int, Meta(ge=1, le=2**20)]
Layers = Annotated[int, Meta(ge=1, le=100)]
Limit = Annotated[int, Meta(ge=0, le=2**20)]
Amount = Annotated[float, Meta(ge=0.0, le=1e6)]
Rate = Annotated[float, Meta(gt=0.0, le=3.4e38)]
"""Learning rate: no step of Adam is beyond it, and float32 holds the greatest one."""
Exponent = Annotated[float, Meta(ge=0.0, le=5.0)]
"""Exponent of a length: float32 holds that power of 2^20 symbols."""
Made = Annotated[float, Meta(gt=0.0, le=1000.0)]
Epochs = Annotated[float, Meta(ge=0.0, le=1e6)]
Interval = Annotated[float, Meta(ge=1e-6)]
Threads = Annotated[int, Meta(ge=0, le=1024)]
WIDEST = 1024
"""Of a beam, and so of a list of outputs."""
Width = Annotated[int, Meta(ge=1, le=WIDEST)]
Radius = Annotated[int, Meta(ge=0, le=1024)]
Seed = Annotated[int, Meta(ge=0, le=2**32 - 1)]
Share = Annotated[float, Meta(ge=0.0, lt=1.0)]
Ratio = Annotated[float, Meta(ge=0.0, le=2.0**20)]
Penalty = Annotated[float, Meta(ge=0.0, le=1e6)]
Offset = Annotated[int, Meta(ge=-(2**20), le=2**20)]


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The base of every struct here: values, compared by content, unknown keys refused."""


class DataConfig(Settings, frozen=True, kw_only=True):
    """How files become symbols."""

    format: Format = "auto"
    """File format: tsv, csv, jsonl, parquet, text (whole lines); auto goes by the name (other names are TSV)."""
    header: Header = "auto"
    """Whether the first line of a TSV or CSV file names the columns: true, false, or auto, which asks in doubt."""
    source_column: str = "1"
    """Column of the source: a name, or a number from 1."""
    target_column: str = "2"
    """Column of the target: a name, or a number from 1."""
    features_column: str = ""
    """Column of features (tags) read beside the source; empty for none."""
    source_symbols: str = "characters"
    """How a source is cut into symbols: characters, words, subwords, or a separator such as "+"."""
    target_symbols: str = "characters"
    """How a target is cut: as a source; or whole: one symbol; or position: the number of a source symbol."""
    features_symbols: str = ";"
    """How features are cut into symbols: characters, words, or a separator."""
    subwords: Count = 8000
    """Most subwords of a side that is cut into them, learnt from the training file."""
    source_normalisation: Normalisation = "nfc"
    """Unicode form of sources and features: nfc, nfd (takes Hangul and accents apart), or none."""
    target_normalisation: Normalisation = "none"
    """Unicode form of targets: none leaves them as they are written."""
    minimum_count: Count = 1
    """Symbols rarer than this in the training file are unknown to the model."""
    maximum_length: Count = 1000
    """Longest source or target, in symbols; a longer line is a bad line."""
    aligned: bool = False
    """Each target must have exactly as many symbols as its source, which task = "tag" needs and sets."""
    unscored: str = ""
    """Tag of positions that are neither trained nor scored (task = "tag"); empty for none."""
    on_bad_line: Literal["stop", "skip"] = "stop"
    """What a malformed line does: stop with its number and reason, or be skipped, counted and listed."""


class EncoderConfig(Settings, frozen=True, kw_only=True):
    """The recurrent encoder: ids to memory."""

    cell: Cell = "gru"
    """Recurrent cell: gru or lstm."""
    hidden_size: Count
    """Hidden units of each direction."""
    layers: Layers = 1
    """Stacked layers."""
    directions: Literal["forward", "both"] = "both"
    """Read the source forward only, or both ways."""
    merge: Literal["concatenate", "sum", "product"] = "concatenate"
    """How the states of the two directions become one."""
    embedding: Embedding = "learnt"
    """Source symbols as learnt vectors, random frozen ones, or one-hot."""
    embedding_size: Count
    """Size of a symbol's vector (one-hot ignores it)."""
    dropout: Share
    """Share of embedding and state units dropped in training."""
    dropout_mask: DropoutMask = "step"
    """State units are dropped anew at each step, or the same ones at all steps of a sequence (variational)."""
    embedding_dropout: Share = 0.0
    """Share of symbols whose whole vector is dropped in training, wherever they stand in a sequence."""
    recurrent_dropout: Share = 0.0
    """Share dropped in training of what a cell reads of its own last state."""
    recurrent_dropout_on: RecurrentDropout = "weights"
    """What recurrent dropout drops: weights (once a batch), or states (the same units all along; no kernel)."""
    layer_normalisation: LayerNormalisation = "none"
    """Layer normalisation of each layer's outputs, or of the sums inside its cells (no kernel), or none."""
    residual: bool = False
    """Each layer above the first adds the one below to its outputs."""
    pretrained: str = ""
    """Text file of vectors ("symbol number number ...") that a new run's embedding starts from; empty for none."""
    features: Literal["prefix", "sum"] = "prefix"
    """Features are read as symbols before the source, or their vectors are added to that of each source symbol."""
    convolutions: tuple[Width, ...] = ()
    """Widths of convolutions side by side in front of the first layer, in symbols ("3 5 9"); empty for none."""
    filters: Count = 32
    """Filters of each convolution (ReLU)."""


class AttentionConfig(Settings, frozen=True, kw_only=True):
    """Where the decoder looks."""

    score: Literal["additive", "location", "monotonic", "dot", "general", "scaled-dot", "none"] = "additive"
    """Score: additive, location (sees its last look), monotonic (only forward), dot, general, scaled-dot, or none."""
    units: Count
    """Units of the additive, the location and the monotonic score (the others ignore it)."""
    filters: Count = 10
    """Filters that the location score slides over the weights of the step before (the others ignore it)."""
    filter_radius: Radius = 7
    """Positions that a filter covers on either side of its middle: 7 makes it 15 wide."""
    heads: Count = 1
    """Looks that the additive score takes at once; they share out its units."""


class DecoderConfig(Settings, frozen=True, kw_only=True):
    """The recurrent decoder."""

    order: Literal["attend-then-step", "step-then-attend"] = "attend-then-step"
    """A look from the last state feeds the cell (Bahdanau), or a look from the new state follows it (Luong)."""
    input_feeding: bool = False
    """With step-then-attend, what each step came to is fed to the next one."""

    cell: Cell = "gru"
    """Recurrent cell: gru or lstm."""
    hidden_size: Count
    """Hidden units."""
    layers: Layers = 1
    """Stacked layers."""
    steps: Width = 1
    """Looks that task = "classify" takes, a step of the cell after each, before it tells the class."""
    start: Literal["zero", "final", "mean"] = "final"
    """Initial state: zero, or a learnt projection of the encoder's final state or of its mean."""
    embedding: Feedback = "learnt"
    """Fed-back target symbols as learnt vectors, random frozen ones, or one-hot; or none: no symbol is fed back."""
    embedding_size: Count
    """Size of a symbol's vector (one-hot and none ignore it)."""
    output: Literal["state", "context", "state-and-context"] = "state-and-context"
    """What the next symbol is predicted from."""
    tied: bool = False
    """The vectors of the target symbols are also the weights that score them."""
    dropout: Share
    """Share of embedding and state units dropped in training."""
    dropout_mask: DropoutMask = "step"
    """State units are dropped anew at each step, or the same ones at all steps of a sequence (variational)."""
    embedding_dropout: Share = 0.0
    """Share of symbols whose whole vector is dropped in training, wherever they stand in a sequence."""
    recurrent_dropout: Share = 0.0
    """Share dropped in training of what a cell reads of its own last state."""
    recurrent_dropout_on: RecurrentDropout = "weights"
    """What recurrent dropout drops: weights (once a batch), or states (the same units all along; no kernel)."""
    layer_normalisation: LayerNormalisation = "none"
    """Layer normalisation of each layer's outputs, or of the sums inside its cells (no kernel), or none."""
    residual: bool = False
    """Each layer above the first adds the one below to its outputs."""
    pretrained: str = ""
    """Text file of vectors ("symbol number number ...") that a new run's embedding starts from; empty for none."""
    copying: bool = False
    """Symbols may be copied from where attention looks, those that the target vocabulary lacks too."""


class TrainingConfig(Settings, frozen=True, kw_only=True):
    """How the parameters are found."""

    epochs: Epochs = 0.0
    """Longest training, in passes over the training file; 0 derives it from the number of examples."""
    batch_size: Limit = 0
    """Size of a batch, in examples or tokens; 0 derives it from the number of examples: small data, small batches."""
    batch_by: Literal["examples", "tokens"] = "examples"
    """Unit of batch_size; tokens counts padded source and target positions."""
    optimizer: Literal["adam", "adamw"] = "adam"
    """Update rule."""
    learning_rate: Rate
    """Highest learning rate."""
    weight_decay: Amount = 0.0
    """Decoupled weight decay (adamw only)."""
    schedule: Literal["constant", "cosine", "inverse-square-root", "plateau"]
    """Course of the learning rate after the warm-up."""
    warmup: Share = 0.05
    """Share of all updates over which the learning rate rises from zero."""
    clip_value: Amount = 0.0
    """Each gradient entry is clipped to this size first (0 = off)."""
    clip_norm: Amount = 1.0
    """The gradient's norm is clipped to this size then (0 = off)."""
    label_smoothing: Share = 0.1
    """Share of the target probability spread over all symbols."""
    coverage_loss: Amount = 0.0
    """Weight of the coverage loss: what attention looks at again costs so much (0 = off)."""
    scheduled_sampling: Schedule = "none"
    """How the share of the model's own symbols that are fed back in training grows: none, linear, exponential, ..."""
    sampling_share: Share = 0.25
    """Share of the model's own symbols among those fed back at the end of training (with scheduled_sampling)."""
    consistency: Amount = 0.0
    """Weight of R-Drop: two passes with different dropout must agree; an update takes twice as long (0 = off)."""
    average: Literal["none", "ema", "last"] = "none"
    """Weights judged and kept: none averaged, a moving average (ema), or the last validations' mean (last)."""
    average_decay: Share = 0.999
    """What the moving average keeps of itself at an update (with average = "ema")."""
    average_last: Width = 5
    """Validations whose weights are averaged (with average = "last")."""
    augmentation: Literal["none", "copy", "hallucinate"] = "none"
    """Made-up pairs beside the training file's: none, targets read as they are written (copy), stems made up."""
    augmentation_share: Made = 0.5
    """Made-up pairs for each pair of the training file (with augmentation)."""
    validate_every: Interval = 1.0
    """Validate each so many epochs (0.1 is ten times an epoch)."""
    metric: Metric = "exact_match"
    """What picks the best checkpoint and stops early."""
    patience: Limit
    """Stop after so many validations without a better metric (0 = never)."""
    snapshots: bool = True
    """Keep at each validation what four examples came to and the symbols' vectors, for the film of the training."""


class SearchConfig(Settings, frozen=True, kw_only=True):
    """How outputs are found."""

    maximum_length: Limit = 0
    """Longest output, in symbols; 0 derives it from the longest training target."""
    minimum_length: Limit = 0
    """Shortest output, in symbols: before it, no output ends."""
    maximum_ratio: Ratio = 0.0
    """Longest output in symbols for each source symbol, beside maximum_length; 0 is off."""
    maximum_offset: Offset = 0
    """Symbols added to what maximum_ratio allows."""
    minimum_ratio: Ratio = 0.0
    """Shortest output in symbols for each source symbol, beside minimum_length; 0 is off."""
    minimum_offset: Offset = 0
    """Symbols added to what minimum_ratio asks."""
    beam_width: Width = 1
    """Hypotheses kept for each source at every step; 1 takes the likeliest symbol (greedy). At most 1,024."""
    length_normalisation: Literal["none", "average", "gnmt"] = "none"
    """What ln p of an output is divided by to rank it: none, average (its length), or gnmt (Wu et al. 2016)."""
    length_power: Exponent = 0.6
    """Exponent of the gnmt normalisation (the others ignore it)."""
    coverage_penalty: Penalty = 0.0
    """Weight of the penalty for source symbols that an output has not looked at; 0 is off."""
    batch_size: Count = 128
    """Sources decoded at once; it changes the speed, never the texts written."""


class Config(Settings, frozen=True, kw_only=True):
    """All of it."""

    size: Size = "base"
    """The one dial: tiny, small, base or large sets every size below that is not set by itself."""
    task: Task = DEFAULT_TASK
    """What a target is: a sequence to write, a tag for each source symbol, the source's class, or a place in it."""
    seed: Seed = 1
    """Seed of initial parameters, batch order and dropout."""
    threads: Threads = 1
    """Threads of computation; 0 takes one for each core. Results are the same to the bit only for the same number."""
    device: Device = "cpu"
    """What trains: cpu, cuda (one GPU), or auto, which takes a GPU where there is one."""
    precision: Precision = "float32"
    """Arithmetic of training: float32, or bf16 for the products of an update (on a GPU only)."""
    deterministic: bool = False
    """On a GPU, take only algorithms that give the same bits each time; a processor always does."""
    graphs: bool = False
    """On a GPU, record an update once for each shape of batch and replay it (CUDA graphs)."""
    data: DataConfig
    encoder: EncoderConfig
    attention: AttentionConfig
    decoder: DecoderConfig
    training: TrainingConfig
    search: SearchConfig


def memory_size(encoder: EncoderConfig) -> int:
    """D, the size of one encoder state after the directions are merged."""
    doubled = encoder.directions == "both" and encoder.merge == "concatenate"
    return encoder.hidden_size * (2 if doubled else 1)
