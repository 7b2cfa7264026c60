"""Every setting of Pellucid: one frozen struct per stage, and one size preset above them.

A `Config` is complete: the preset of its size, overlaid by a TOML file, overlaid by flags. It is saved in the run
folder and loaded from there, so a model never depends on how its training was started.
"""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from pellucid.arguments import check_arguments

Size = Literal["tiny", "small", "base", "large"]
Task = Annotated[str, Meta(title="task")]
"""Name of a task: transduce, tag, classify, point, or one that is registered (tasks/task_settings.py)."""
DEFAULT_TASK: Task = "transduce"
Cell = Literal["gru", "lstm"]
Format = Literal["auto", "tsv", "csv", "jsonl", "parquet", "text"]
Header = bool | Literal["auto"]
Embedding = Literal["learned", "frozen", "one-hot"]
Feedback = Literal["learned", "frozen", "one-hot", "none"]
Normalization = Literal["none", "nfc", "nfd"]
Device = Literal["auto", "cpu", "cuda"]
Precision = Literal["float32", "bf16"]
LayerNormalization = Literal["none", "outputs", "cells"]
DropoutMask = Literal["step", "sequence"]
RecurrentDropout = Literal["weights", "states"]
SamplingSchedule = Literal["none", "linear", "exponential", "inverse-sigmoid"]
Metric = Literal["exact_match", "symbol_error_rate", "symbol_accuracy", "loss"]
Count = Annotated[int, Meta(ge=1, le=2**20)]
Layers = Annotated[int, Meta(ge=1, le=100)]
Limit = Annotated[int, Meta(ge=0, le=2**20)]
Amount = Annotated[float, Meta(ge=0.0, le=1e6)]
LearningRate = Annotated[float, Meta(gt=0.0, le=3.4e38)]
"""No step of Adam is larger than the learning rate, and float32 holds the largest one allowed."""
Exponent = Annotated[float, Meta(ge=0.0, le=5.0)]
"""Exponent of a length: float32 holds that power of 2^20 symbols."""
AugmentationRatio = Annotated[float, Meta(gt=0.0, le=1000.0)]
Epochs = Annotated[float, Meta(ge=0.0, le=1e6)]
Interval = Annotated[float, Meta(ge=1e-6)]
Threads = Annotated[int, Meta(ge=0, le=1024)]
MAX_BEAM_SIZE = 1024
"""Largest beam, and so the longest list of outputs."""
Width = Annotated[int, Meta(ge=1, le=MAX_BEAM_SIZE)]
Radius = Annotated[int, Meta(ge=0, le=1024)]
Seed = Annotated[int, Meta(ge=0, le=2**32 - 1)]
Fraction = Annotated[float, Meta(ge=0.0, lt=1.0)]
Ratio = Annotated[float, Meta(ge=0.0, le=2.0**20)]
Penalty = Annotated[float, Meta(ge=0.0, le=1e6)]
Offset = Annotated[int, Meta(ge=-(2**20), le=2**20)]


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of every settings struct: immutable, compared by value, unknown keys refused."""


class DataConfig(Settings, frozen=True, kw_only=True):
    """Reading and tokenizing of data files."""

    format: Format = "auto"
    """File format: tsv, csv, jsonl, parquet or text (one source per line). auto uses the file name; default TSV."""
    header: Header = "auto"
    """The first line of a TSV or CSV file names the columns: true, false, or auto (stops if it is unclear)."""
    source_column: str = "1"
    """Column of the source: a name, or a number from 1."""
    target_column: str = "2"
    """Column of the target: a name, or a number from 1."""
    features_column: str = ""
    """Column of features (tags) that accompany the source; empty for none."""
    source_symbols: str = "characters"
    """Tokenization of sources: characters, words, subwords, or a separator such as "+"."""
    target_symbols: str = "characters"
    """Tokenization of targets: as of sources, or whole (one symbol), or position (the number of a source symbol)."""
    features_symbols: str = ";"
    """Tokenization of features: characters, words, or a separator."""
    subword_vocab_size: Count = 8000
    """Maximum number of subwords per side, learned from the training file (with subwords)."""
    source_normalization: Normalization = "nfc"
    """Unicode normalization of sources and features: nfc, nfd (decomposes Hangul and accents), or none."""
    target_normalization: Normalization = "none"
    """Unicode normalization of targets: nfc, nfd, or none (unchanged)."""
    min_count: Count = 1
    """Symbols with fewer occurrences in the training file are unknown to the model."""
    max_length: Count = 1000
    """Maximum length of a source or target, in symbols; a longer line is a bad line."""
    aligned: bool = False
    """Require that each target has as many symbols as its source (set by task = "tag")."""
    ignored_tag: str = ""
    """Tag of positions that count neither for the loss nor for the metrics (task = "tag"); empty for none."""
    on_bad_line: Literal["stop", "skip"] = "stop"
    """For a malformed line: stop with its number and the reason, or skip it; skipped lines are counted and listed."""


class EncoderConfig(Settings, frozen=True, kw_only=True):
    """The recurrent encoder."""

    cell: Cell = "gru"
    """Recurrent cell: gru or lstm."""
    hidden_size: Count
    """Hidden units per direction."""
    num_layers: Layers = 1
    """Number of stacked layers."""
    bidirectional: bool = True
    """Encode the source in both directions; otherwise forward only."""
    merge: Literal["concatenate", "sum", "product"] = "concatenate"
    """Combination of the states of the two directions."""
    embedding: Embedding = "learned"
    """Embedding of source symbols: learned, frozen (random), or one-hot."""
    embedding_size: Count
    """Embedding size (ignored by one-hot)."""
    dropout: Fraction
    """Dropout probability of embedding and state units."""
    dropout_mask: DropoutMask = "step"
    """Dropout mask of states: a new one per time step, or one per sequence (variational dropout)."""
    embedding_dropout: Fraction = 0.0
    """Probability of dropping the whole embedding of a symbol, at all its positions in a sequence."""
    recurrent_dropout: Fraction = 0.0
    """Dropout probability of the recurrent connections of the cell."""
    recurrent_dropout_on: RecurrentDropout = "weights"
    """Recurrent dropout of weights (one mask per batch), or states (one mask per sequence; slower)."""
    layer_normalization: LayerNormalization = "none"
    """Layer normalization of the outputs of each layer, of the preactivations inside its cells (slower), or none."""
    residual: bool = False
    """Residual connections around each layer above the first."""
    pretrained: str = ""
    """Text file of pretrained embeddings ("symbol number number ..."), used at initialization; empty for none."""
    features: Literal["prefix", "sum"] = "prefix"
    """Features precede the source as symbols (prefix), or their embeddings are added to each source symbol (sum)."""
    convolutions: tuple[Width, ...] = ()
    """Kernel widths of parallel convolutions before the first layer, in symbols ("3 5 9"); empty for none."""
    filters: Count = 32
    """Filters of each convolution (ReLU)."""


class AttentionConfig(Settings, frozen=True, kw_only=True):
    """The attention of the decoder over the encoder states."""

    type: Literal["additive", "location", "monotonic", "dot", "general", "scaled-dot", "none"] = "additive"
    """Attention score: additive, location (location-sensitive), monotonic, dot, general, scaled-dot, or none."""
    size: Count
    """Attention units of the additive, location and monotonic scores (ignored by the others)."""
    filters: Count = 10
    """Convolution filters of the location score over the previous attention weights (ignored by the others)."""
    filter_radius: Radius = 7
    """Positions that a filter covers on either side of its center: 7 gives a width of 15."""
    num_heads: Count = 1
    """Number of attention heads of the additive score; the units are split across the heads."""


class DecoderConfig(Settings, frozen=True, kw_only=True):
    """The recurrent decoder."""

    order: Literal["attend-then-step", "step-then-attend"] = "attend-then-step"
    """Attend with the previous state, then update it (Bahdanau), or update it first, then attend (Luong)."""
    input_feeding: bool = False
    """Concatenate the attentional state to the next input (with step-then-attend)."""
    cell: Cell = "gru"
    """Recurrent cell: gru or lstm."""
    hidden_size: Count
    """Hidden units."""
    num_layers: Layers = 1
    """Number of stacked layers."""
    num_hops: Width = 1
    """Attention hops of task = "classify"; the cell is updated after each."""
    init_hidden: Literal["zero", "final", "mean"] = "final"
    """Initial state: zero, or a learned projection of the final encoder state or of the mean encoder state."""
    embedding: Feedback = "learned"
    """Embedding of the previous target symbol: learned, frozen (random), one-hot, or none (it is not an input)."""
    embedding_size: Count
    """Embedding size (ignored by one-hot and none)."""
    output: Literal["state", "context", "state-and-context"] = "state-and-context"
    """Inputs of the output layer."""
    tie_embeddings: bool = False
    """Use the target embeddings as the weights of the output layer."""
    dropout: Fraction
    """Dropout probability of embedding and state units."""
    dropout_mask: DropoutMask = "step"
    """Dropout mask of states: a new one per time step, or one per sequence (variational dropout)."""
    embedding_dropout: Fraction = 0.0
    """Probability of dropping the whole embedding of a symbol, at all its positions in a sequence."""
    recurrent_dropout: Fraction = 0.0
    """Dropout probability of the recurrent connections of the cell."""
    recurrent_dropout_on: RecurrentDropout = "weights"
    """Recurrent dropout of weights (one mask per batch), or states (one mask per sequence; slower)."""
    layer_normalization: LayerNormalization = "none"
    """Layer normalization of the outputs of each layer, of the preactivations inside its cells (slower), or none."""
    residual: bool = False
    """Residual connections around each layer above the first."""
    pretrained: str = ""
    """Text file of pretrained embeddings ("symbol number number ..."), used at initialization; empty for none."""
    pointer_generator: bool = False
    """Let the decoder copy source symbols, also those outside the target vocabulary (pointer-generator)."""


class TrainingConfig(Settings, frozen=True, kw_only=True):
    """Optimization, regularization and validation."""

    epochs: Epochs = 0.0
    """Maximum number of epochs; 0 derives it from the number of training pairs."""
    batch_size: Limit = 0
    """Batch size, in batch_type units; 0 derives it from the number of training pairs."""
    batch_type: Literal["examples", "tokens"] = "examples"
    """Unit of batch_size: examples, or tokens (padded source and target positions)."""
    optimizer: Literal["adam", "adamw"] = "adam"
    """Optimizer."""
    learning_rate: LearningRate
    """Peak learning rate."""
    weight_decay: Amount = 0.0
    """Decoupled weight decay (adamw only)."""
    lr_schedule: Literal["constant", "cosine", "inverse-square-root", "plateau"]
    """Learning rate schedule after the warmup."""
    warmup_ratio: Fraction = 0.05
    """Fraction of all updates over which the learning rate rises linearly from zero."""
    clip_value: Amount = 0.0
    """Clip each gradient entry to ± this value, before clip_norm (0 = off)."""
    clip_norm: Amount = 1.0
    """Then clip the norm of the gradient to this value (0 = off)."""
    label_smoothing: Fraction = 0.1
    """Probability mass spread evenly over the vocabulary."""
    coverage_loss: Amount = 0.0
    """Weight of the coverage loss, which penalizes repeated attention to a position (0 = off)."""
    scheduled_sampling: SamplingSchedule = "none"
    """Schedule by which teacher forcing gives way to the model's own predictions: none, linear, exponential, ..."""
    sampling_probability: Fraction = 0.25
    """Probability of feeding back a prediction at the end of training (with scheduled_sampling)."""
    rdrop_alpha: Amount = 0.0
    """Weight of the R-Drop loss between two dropout passes; an update takes twice as long (0 = off)."""
    weight_averaging: Literal["none", "ema", "last"] = "none"
    """Averaging of the saved weights: none, ema (exponential moving average), or last (the last checkpoints)."""
    ema_decay: Fraction = 0.999
    """Decay of the moving average per update (with weight_averaging = "ema")."""
    averaged_checkpoints: Width = 5
    """Number of last checkpoints averaged (with weight_averaging = "last")."""
    augmentation: Literal["none", "copy", "hallucinate"] = "none"
    """Synthetic training pairs: none, copy (source equals target), or hallucinate (random stems)."""
    augmentation_ratio: AugmentationRatio = 0.5
    """Synthetic pairs per training pair (with augmentation)."""
    eval_interval: Interval = 1.0
    """Epochs between validations (0.1 validates ten times per epoch)."""
    metric: Metric = "exact_match"
    """Validation metric that selects the best checkpoint and decides early stopping."""
    patience: Limit
    """Stop after this many validations without improvement (0 = never)."""
    snapshots: bool = True
    """Save four example outputs and the embeddings at each validation; the viewer shows them as an animation."""


class SearchConfig(Settings, frozen=True, kw_only=True):
    """Decoding by greedy or beam search."""

    max_length: Limit = 0
    """Maximum output length, in symbols; 0 derives it from the longest training target."""
    min_length: Limit = 0
    """Minimum output length, in symbols."""
    max_length_ratio: Ratio = 0.0
    """Maximum output length as a multiple of the source length, in addition to max_length; 0 is off."""
    max_length_offset: Offset = 0
    """Symbols added to the limit of max_length_ratio."""
    min_length_ratio: Ratio = 0.0
    """Minimum output length as a multiple of the source length, in addition to min_length; 0 is off."""
    min_length_offset: Offset = 0
    """Symbols added to the limit of min_length_ratio."""
    beam_size: Width = 1
    """Hypotheses kept per source at each step; 1 is greedy search. At most 1,024."""
    length_normalization: Literal["none", "average", "gnmt"] = "none"
    """Divide the log-probability of a hypothesis by nothing, by its length, or by the GNMT penalty (Wu et al. 2016)."""
    length_penalty_alpha: Exponent = 0.6
    """Exponent alpha of the gnmt length penalty (ignored by the others)."""
    coverage_penalty: Penalty = 0.0
    """Weight of the penalty for source positions with little attention; 0 is off."""
    batch_size: Count = 128
    """Maximum number of sources per batch in decoding; it changes speed and memory, not the outputs."""


class Config(Settings, frozen=True, kw_only=True):
    """All settings of a run."""

    size: Size = "base"
    """Model size preset: tiny, small, base or large. It sets every size that is not set explicitly."""
    task: Task = DEFAULT_TASK
    """Task: transduce (a sequence), tag (a tag per source symbol), classify (a class), or point (a source position)."""
    seed: Seed = 1
    """Random seed of initial parameters, batch order and dropout."""
    threads: Threads = 1
    """CPU threads; 0 uses all cores. Results are bit-for-bit reproducible for the same number of threads."""
    device: Device = "cpu"
    """Device for training: cpu, cuda (one GPU), or auto (a GPU if there is one)."""
    precision: Precision = "float32"
    """Precision of training: float32, or bf16 for matrix products (GPU only)."""
    deterministic: bool = False
    """Use only deterministic algorithms on a GPU; the CPU is always deterministic."""
    cuda_graphs: bool = False
    """Record an update once per batch shape as a CUDA graph and replay it (GPU only)."""
    data: DataConfig
    encoder: EncoderConfig
    attention: AttentionConfig
    decoder: DecoderConfig
    training: TrainingConfig
    search: SearchConfig


@check_arguments
def memory_size(encoder: EncoderConfig) -> int:
    """Return D, the size of one encoder state after the two directions are merged.

    Args:
        encoder: Configuration of the encoder.
    """
    doubled = encoder.bidirectional and encoder.merge == "concatenate"
    return encoder.hidden_size * (2 if doubled else 1)
