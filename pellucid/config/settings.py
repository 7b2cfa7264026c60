"""Every setting of Pellucid: one frozen struct per section, and one size preset above them.

A `Config` is complete: the presets of its size and task, overlaid by a TOML file, overlaid by flags. It is saved in
the run folder and loaded from there, so a model never depends on how its training was started.

The string below a field is its help on the command line and its comment in TOML. It is one paragraph. If the
value 0 has a special meaning, the sentence says so, as "0 = off" or "0 derives it from ..." (`config_differences`).
"""

from pathlib import Path
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from pellucid.argument_checks import check_arguments

Size = Literal["tiny", "small", "base", "large"]
SizeChoice = Literal["auto", "tiny", "small", "base", "large"]
"""Size in a settings file or on the command line; "auto" becomes a size before a configuration is complete."""
TaskName = Annotated[str, Meta(title="task")]
"""Name of a task: transduce, tag, classify, point, tag-and-classify, or a registered one (config/task_settings.py)."""
DEFAULT_TASK: TaskName = "transduce"
AttentionName = Annotated[str, Meta(title="attention")]
"""Name of a type of attention: a built-in one, or one that is registered (config/attention_types.py)."""
Cell = Literal["gru", "lstm"]
"""Built-in cells."""
CellName = Annotated[str, Meta(title="cell")]
"""Name of a recurrent cell: a built-in one, or one that is registered (config/cell_types.py)."""
OptimizerName = Annotated[str, Meta(title="optimizer")]
"""Name of an optimizer: a built-in one, or one that is registered (config/training_types.py)."""
MetricName = Annotated[str, Meta(title="metric")]
"""Name of a validation metric: a built-in one, or one that is registered (config/training_types.py)."""
CallbackName = Annotated[str, Meta(title="callback")]
"""Name of a receiver of training events: a built-in one, or one that is registered (config/training_types.py)."""
Format = Literal["auto", "tsv", "csv", "jsonl", "parquet", "text"]
Delimiter = Literal["auto", ",", ";", "tab", "|"]
Header = bool | Literal["auto"]
Embedding = Literal["learned", "frozen", "one-hot"]
TargetEmbedding = Literal["learned", "frozen", "one-hot", "none"]
Normalization = Literal["none", "nfc", "nfd"]
Device = Literal["auto", "cpu", "cuda"]
Precision = Literal["float32", "bf16"]
ReadoutKind = Literal["state", "context", "state-and-context"]
LayerNormalization = Literal["none", "outputs", "cells"]
Characters = Literal["none", "convolution", "gru"]
DropoutMask = Literal["step", "sequence"]
RecurrentDropout = Literal["weights", "states"]
SamplingSchedule = Literal["none", "linear", "exponential", "inverse-sigmoid"]
NetworkPart = Literal["encoder", "attention", "decoder", "embeddings", "output"]
"""Part of a network that a training may leave unchanged; each parameter belongs to exactly one."""
PositiveInt = Annotated[int, Meta(ge=1, le=2**20)]
"""A size or a number of parts of which there is at least one, such as units, symbols of a vocabulary, or trials."""
Layers = Annotated[int, Meta(ge=1, le=100)]
MAX_SEQUENCE_LENGTH = 2**15
"""Maximum number of symbols of a source or a target: each step of a decoder attends to all positions of the source."""
SequenceLength = Annotated[int, Meta(ge=1, le=MAX_SEQUENCE_LENGTH)]
OutputLength = Annotated[int, Meta(ge=0, le=MAX_SEQUENCE_LENGTH)]
Limit = Annotated[int, Meta(ge=0, le=2**20)]
Amount = Annotated[float, Meta(ge=0.0, le=1e6)]
LearningRate = Annotated[float, Meta(gt=0.0, le=3.4e38)]
"""The maximum is about that of float32."""
Exponent = Annotated[float, Meta(ge=0.0, le=5.0)]
"""Exponent of the length penalty. float32 holds the fifth power of 2^15, the maximum length."""
AugmentationRatio = Annotated[float, Meta(gt=0.0, le=1000.0)]
Epochs = Annotated[float, Meta(ge=0.0, le=1e6)]
Interval = Annotated[float, Meta(ge=0.0)]
Threads = Annotated[int, Meta(ge=0, le=1024)]
MAX_BEAM_SIZE = 1024
"""Maximum beam size, and maximum length of an n-best list."""
BeamSize = Annotated[int, Meta(ge=1, le=MAX_BEAM_SIZE)]
SmallCount = Annotated[int, Meta(ge=1, le=2**10)]
Radius = Annotated[int, Meta(ge=0, le=1024)]
ContextWords = Annotated[int, Meta(ge=0, le=10)]
"""Number of words of context on either side of a word."""
Seed = Annotated[int, Meta(ge=0, le=2**32 - 1)]
Fraction = Annotated[float, Meta(ge=0.0, lt=1.0)]
Ratio = Annotated[float, Meta(ge=0.0, le=2.0**20)]
Penalty = Annotated[float, Meta(ge=0.0, le=1e6)]
Offset = Annotated[int, Meta(ge=-(2**20), le=2**20)]


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of every settings struct: immutable, compared by value, unknown keys refused."""


class DataConfig(Settings, frozen=True, kw_only=True):
    """Reading and tokenizing of data files, in training and in later commands with the run."""

    input_format: Format = "auto"
    """Format of data files: tsv, csv, jsonl, parquet or text (one source per line, with a parallel file of targets).
    auto: by the file name, else tsv."""
    delimiter: Delimiter = "auto"
    """Separator of the columns of CSV files: "," or ";" or "|" or the word tab. auto: the comma, unless the first lines
    clearly have another one; a file whose name has no known ending is read as CSV if one is given."""
    header: Header = "auto"
    """Whether the first line of a TSV or CSV file names the columns: true (flag --header), false (flag --no-header), or
    auto. auto is true if a column is selected by name; otherwise the first line is an example, and one that looks like
    column names is an error."""
    source_column: str = "1"
    """Column of the source (or JSON key): a name, or a number from 1."""
    target_column: str = "2"
    """Column of the target (or JSON key): a name, or a number from 1."""
    features_column: str = ""
    """Column of features, such as morphological tags, which the encoder reads with the source: a name, or a number from
    1; empty if there is none."""
    class_column: str = ""
    """Column of the class, where classes and tags have a column each (task = "tag-and-classify" only): a name, or a
    number from 1; empty if the target begins with the class."""
    group_column: str = ""
    """Column of groups, such as speakers or documents, for a validation set that is held out of the training file: all
    examples of a group are held out, or none; a name, or a number from 1; empty to hold out sources one by one."""
    source_symbols: str = "characters"
    """Symbols of sources: characters (code points), ipa (phones of IPA: letters with their marks, as t͡ʃ and aː), words
    (between white space), subwords (byte-pair encoding), whole (the text is one symbol), or parts between a separator
    such as "+"."""
    target_symbols: str = "characters"
    """Symbols of targets: as for sources, or position (the number of a source symbol). task = "classify" sets whole,
    task = "point" sets position."""
    features_symbols: str = ";"
    """Symbols of features: characters, ipa, words, whole, or parts between a separator; not subwords."""
    context_words: ContextWords = 0
    """Number of words before and after a source that the encoder reads as features of it, in lower case: the
    neighboring lines of a file in the order of running text. A blank line, or a row with an empty source, ends a
    sentence. 0 = off; at most 10. With features_column, that column holds the words."""
    subword_vocab_size: PositiveInt = 8000
    """Maximum number of subwords of a side that is split into subwords, learned from the training file; its characters
    are among them."""
    source_normalization: Normalization = "nfc"
    """Unicode normalization of sources and features: nfc (composed), nfd (decomposed: accents and parts of Hangul
    syllables are characters), or none."""
    target_normalization: Normalization = "none"
    """Unicode normalization of targets, and so of outputs: nfc, nfd, or none."""
    min_count: PositiveInt = 1
    """Minimum number of occurrences of a symbol in the training file. Rarer symbols are encoded as unknown; rarer
    subwords are split. Tags, classes and positions of targets are always kept."""
    max_sequence_length: SequenceLength = 1000
    """Maximum number of symbols of a source, of a target, and of features, in training and in later inputs. A longer
    line is a bad line. At most 32,768."""
    equal_length: bool = False
    """Require that each target has as many symbols as its source; other pairs are bad lines. task = "tag" sets it."""
    class_first: bool = False
    """Each target begins with the class of its source, before the tags. task = "tag-and-classify" sets it."""
    ignored_tag: str = ""
    """Tag of positions that count neither for the loss nor for the metrics (tasks with tags only); empty if there is
    none."""
    on_bad_line: Literal["stop", "skip"] = "stop"
    """For a line that cannot be read as a pair: stop with its number and the reason, or skip it; skipped lines are
    counted and listed."""


class EncoderConfig(Settings, frozen=True, kw_only=True):
    """The recurrent encoder."""

    cell: CellName = "gru"
    """Recurrent cell: gru, lstm, or that of another package."""
    hidden_size: PositiveInt
    """Hidden units of each layer and direction."""
    num_layers: Layers = 1
    """Number of stacked layers."""
    bidirectional: bool = True
    """Encode the source in both directions; otherwise forward only."""
    merge: Literal["concatenate", "sum", "product"] = "concatenate"
    """Combination of the states of the two directions: concatenate, sum, or product (elementwise)."""
    embedding: Embedding = "learned"
    """Embedding of source symbols: learned, frozen (not trained; random unless pretrained), or one-hot."""
    embedding_size: PositiveInt
    """Size of the source embeddings; one-hot embeddings ignore it."""
    dropout: Fraction
    """Dropout probability of the units of embeddings, convolutions and layer outputs, in training."""
    dropout_mask: DropoutMask = "step"
    """Dropout mask of layer outputs: a new one at each position (step), or one per sequence (sequence: variational
    dropout)."""
    embedding_dropout: Fraction = 0.0
    """Probability of dropping the whole embedding of a symbol, at all its positions in a sequence."""
    recurrent_dropout: Fraction = 0.0
    """Dropout probability of the recurrent connections of the cells."""
    recurrent_dropout_on: RecurrentDropout = "weights"
    """Recurrent dropout of the recurrent weights (one mask per batch), or of the previous states (one mask per
    sequence; slower)."""
    layer_normalization: LayerNormalization = "none"
    """Layer normalization: none, of the outputs of each layer (outputs), or of the preactivations inside the cells
    (cells; slower)."""
    residual: bool = False
    """Residual connections around each layer above the first (with num_layers of 2 or more)."""
    pretrained: str = ""
    """Text file of pretrained source embeddings, one "symbol number number ..." per line with embedding_size numbers;
    other symbols start at random. An empty string: no pretrained embeddings."""
    feature_merge: Literal["prefix", "sum"] = "prefix"
    """How features are merged with the source: prefix (as symbols before it), or sum (their embeddings are added to
    that of each source symbol)."""
    convolutions: tuple[SmallCount, ...] = ()
    """Kernel widths, in symbols, of parallel convolutions between the embeddings and the first layer ("3 5 9"); at most
    32 widths; empty for no convolutions."""
    filters: PositiveInt = 32
    """Number of filters of each convolution, which is followed by ReLU (with convolutions)."""
    characters: Characters = "none"
    """Vector of the characters of each source word, appended to its embedding, so that unknown words keep their
    characters: none, convolution (Ma & Hovy 2016), or gru (bidirectional). Not with source_symbols = "characters"."""
    character_size: PositiveInt = 32
    """Size of the embeddings of characters, and number of units of the vector: filters, or GRU units of a direction
    (with characters)."""
    word_dropout: Fraction = 0.5
    """Probability of reading a word that occurs once in the training set as unknown, in training, so that the unknown
    embedding is trained (with characters)."""
    context_dropout: Fraction = 0.02
    """Probability of reading a word of the context as unknown, in training, so that outputs do not depend on words
    that later texts lack (with data.context_words)."""


class AttentionConfig(Settings, frozen=True, kw_only=True):
    """The attention of the decoder over the encoder states."""

    type: AttentionName = "additive"
    """Attention score: additive, location (location-sensitive), monotonic, dot, general, scaled-dot, none, or that of
    another package, which may read every setting of this section. task = "tag" has no attention."""
    size: PositiveInt
    """Attention units of the additive, location and monotonic scores; the other built-in ones ignore it."""
    filters: PositiveInt = 10
    """Number of convolution filters over the previous attention weights (of the built-in scores, only location
    has them)."""
    filter_radius: Radius = 7
    """Positions that such a filter covers on either side of its center: 7 gives a width of 15 (of the built-in
    scores, only location reads it)."""
    num_heads: PositiveInt = 1
    """Number of attention heads (of the built-in scores, only additive has several); the attention units are split
    across the heads, so it must divide attention.size."""


class DecoderConfig(Settings, frozen=True, kw_only=True):
    """The recurrent decoder. task = "tag" has none; task = "point" uses hidden_size and init_hidden only, and task =
    "tag-and-classify" also output_layer_inputs."""

    order: Literal["attend-then-step", "step-then-attend"] = "attend-then-step"
    """Order of a decoder step: attend-then-step attends with the previous state, then updates it (Bahdanau);
    step-then-attend updates the state, then attends with it (Luong)."""
    input_feeding: bool = False
    """Concatenate the attentional state to the next input of the cell (step-then-attend only)."""
    cell: CellName = "gru"
    """Recurrent cell: gru, lstm, or that of another package."""
    hidden_size: PositiveInt
    """Hidden units of each layer."""
    num_layers: Layers = 1
    """Number of stacked layers. Attention uses the state of the top layer (Luong et al. 2015, section 3)."""
    num_hops: SmallCount = 1
    """Number of decoder steps of task = "classify", each with attention; other tasks ignore it."""
    init_hidden: Literal["zero", "final", "mean"] = "final"
    """Initial state: zero, or a learned projection of the final or of the mean encoder state."""
    embedding: TargetEmbedding = "learned"
    """Embedding of the previous target symbol: learned, frozen (not trained; random unless pretrained), one-hot, or
    none (it is not an input). Only task = "transduce" has previous target symbols."""
    embedding_size: PositiveInt
    """Size of the target embeddings; one-hot and none ignore it."""
    output_layer_inputs: ReadoutKind = "state-and-context"
    """Inputs of the output layer: decoder state, attention context, or both. With step-then-attend they are combined
    into the attentional state, which the output layer reads."""
    tie_embeddings: bool = False
    """Use the target embeddings as the weights of the output layer (with learned or frozen embeddings)."""
    dropout: Fraction
    """Dropout probability of the units of embeddings and layer outputs, in training."""
    dropout_mask: DropoutMask = "step"
    """Dropout mask of layer outputs: a new one at each step, or one per sequence (variational dropout)."""
    embedding_dropout: Fraction = 0.0
    """Probability of dropping the whole embedding of a symbol, at all its positions in a sequence."""
    recurrent_dropout: Fraction = 0.0
    """Dropout probability of the recurrent connections of the cells."""
    recurrent_dropout_on: RecurrentDropout = "weights"
    """Recurrent dropout of the recurrent weights (one mask per batch), or of the previous states (one mask per
    sequence; slower)."""
    layer_normalization: LayerNormalization = "none"
    """Layer normalization: none, of the outputs of each layer (outputs), or of the preactivations inside the cells
    (cells; slower)."""
    residual: bool = False
    """Residual connections around each layer above the first (with num_layers of 2 or more)."""
    pretrained: str = ""
    """Text file of pretrained target embeddings, one "symbol number number ..." per line with embedding_size numbers;
    other symbols start at random. An empty string: no pretrained embeddings."""
    pointer_generator: bool = False
    """Let the decoder copy source symbols, also those outside the target vocabulary (pointer-generator; needs
    attention and task = "transduce")."""


class TrainingConfig(Settings, frozen=True, kw_only=True):
    """Optimization, regularization and validation. Without effect on later commands with the run."""

    epochs: Epochs = 0.0
    """Maximum number of epochs; 0 derives it from the number of training pairs. It is then 30 for 3,600 pairs, more for
    fewer (at most 200), and fewer for more."""
    time_limit: str = ""
    """Maximum time of the training, such as "90s", "10m" or "2h"; empty if there is none. Each member of an ensemble
    has the whole time. The learning rate then follows the share of the time or the share of the epochs, whichever is
    greater. The result depends on the speed of the machine. If no size is given, train chooses it by the speed of a few
    updates."""
    batch_size: Limit = 0
    """Batch size, in units of batch_type; 0 derives it from the number of training pairs. It is then 8 for 1,000 pairs,
    16 for 3,600, and 64 from 32,768."""
    batch_type: Literal["examples", "tokens"] = "examples"
    """Unit of batch_size: examples, or tokens (padded source and target positions; needs a batch_size above 0)."""
    optimizer: OptimizerName = "adam"
    """Optimizer: adam, adamw (Adam with decoupled weight decay), or that of another package."""
    learning_rate: LearningRate
    """Peak learning rate, at the end of the warmup."""
    weight_decay: Amount = 0.0
    """Decoupled weight decay (adamw, and optimizers of other packages)."""
    lr_schedule: Literal["constant", "cosine", "inverse-square-root", "plateau"]
    """Learning rate after the warmup: constant, cosine (falls to zero), inverse-square-root, or plateau (halved after
    every three validations without improvement)."""
    warmup_ratio: Fraction = 0.05
    """Fraction of the maximum number of updates over which the learning rate rises linearly from zero to its peak."""
    clip_value: Amount = 0.0
    """Clip each gradient entry to ± this value, before clip_norm (0 = off)."""
    clip_norm: Amount = 1.0
    """Clip the norm of the gradient of all parameters to this value, after clip_value (0 = off)."""
    label_smoothing: Fraction = 0.1
    """Label smoothing: probability mass of each target that is spread evenly over the vocabulary (task = "point": over
    the source positions; task = "tag-and-classify": over the classes, or over the tags)."""
    coverage_loss: Amount = 0.0
    """Weight of the coverage loss, which penalizes repeated attention to a position (0 = off)."""
    scheduled_sampling: SamplingSchedule = "none"
    """Schedule by which the probability of feeding back a sampled prediction instead of the true symbol rises from
    zero: none (teacher forcing only), linear, exponential, or inverse-sigmoid (task = "transduce" only)."""
    sampling_probability: Fraction = 0.25
    """Probability of feeding back a prediction at the end of the maximum number of updates (with scheduled_sampling).
    """
    sampled_softmax: Limit = 0
    """Sampled softmax: mean number of target symbols that are drawn for each batch; the loss of the batch is computed
    over these symbols only. It is faster for vocabularies of thousands of symbols. Validation and predictions use all
    symbols (0 = off; task = "transduce" only)."""
    rdrop_alpha: Amount = 0.0
    """Weight of the R-Drop loss between two dropout passes; an update takes twice as long (0 = off)."""
    weight_averaging: Literal["none", "ema", "last"] = "none"
    """Weights that are validated and saved: none (the current ones), ema (their exponential moving average), or last
    (the mean of those at the last validations)."""
    ema_decay: Fraction = 0.999
    """Decay of the moving average per update; it is smaller for the first updates (with weight_averaging = "ema")."""
    averaged_checkpoints: SmallCount = 5
    """Number of last validations whose weights are averaged (with weight_averaging = "last")."""
    augmentation: Literal["none", "copy", "hallucinate"] = "none"
    """Synthetic training pairs: none, copy (the target is its own source), or hallucinate (stems that source and target
    share are replaced by random symbols). Only with task = "transduce"."""
    augmentation_ratio: AugmentationRatio = 0.5
    """Synthetic pairs per training pair (with augmentation)."""
    init_from: str = ""
    """Run folder whose parameters and symbols the training begins from (fine-tuning); empty for a new network. Its
    task, tokenization and network are the defaults; the default learning rate is a quarter of that of the size."""
    init_from_digest: str = ""
    """SHA-256 of the model file of init_from in hexadecimal, which the training records; if it is given, another
    model is refused. An empty string: no check."""
    freeze: tuple[NetworkPart, ...] = ()
    """Parts of the network of init_from that are not changed: encoder, attention, decoder, embeddings, output.
    Encoder and decoder are those without embeddings, attention and output layer. An empty list: all parts are
    trained."""
    mix_in: str = ""
    """File of earlier training pairs, with the columns of the training file. Each epoch repeats some of them, drawn at
    random, so that the model does not forget them; empty if there is none."""
    mix_in_fraction: Fraction = 0.5
    """Share of the pairs of mix_in among the pairs of an epoch (with mix_in); 0.5 draws one for each new pair."""
    eval_interval: Interval = 0.0
    """Number of epochs between validations (0.1 validates ten times per epoch); training ends with a validation. 0
    derives it from the sizes of both sets: one epoch, or more if the training set has fewer than twenty times as many
    pairs as the validation set."""
    metric: MetricName = "exact_match"
    """Validation metric that selects the saved model and decides early stopping and the plateau schedule; tune
    optimizes it: exact_match, symbol_error_rate, symbol_accuracy, loss, or that of another package. Ties are broken by
    symbol_error_rate, then by loss."""
    patience: Limit
    """Stop after this many validations in a row without improvement (0 = never)."""
    perfect_patience: Limit = 5
    """Stop when the best validation is perfect by the metric, and its loss has not improved for this many validations
    and at least this many epochs (0 = never); not before half of the maximum number of epochs. metric = "loss" is
    never perfect."""
    pair_ngram: bool = True
    """Fit a pair n-gram model to the training pairs as well, which takes seconds. Predictions then rank the outputs of
    both models by both scores; the validation set decides the weight. Only task = "transduce", without
    pointer_generator and without features other than context words. The flag --no-pair-ngram of train sets this one;
    that of predict and evaluate sets search.pair_ngram."""
    callbacks: tuple[CallbackName, ...] = ()
    """Receivers of the events of the training, which each training process constructs: tensorboard, mlflow, or those of
    other packages. A run may be resumed with others. An empty list: no receivers."""
    snapshots: bool = True
    """Save the outputs of the first four validation examples, and embeddings, at each validation; the viewer (look)
    shows them as an animation."""


class SearchConfig(Settings, frozen=True, kw_only=True):
    """Beam search or greedy search: the defaults of later commands with the run. Validation during training is greedy,
    whatever the beam size, with the same length limits."""

    max_length: OutputLength = 0
    """Maximum output length, in symbols; 0: 1.5 times the longest training target plus 10. At most 1,000, or 10 times
    the longest training target if that is more, and never more than 32,768."""
    min_length: OutputLength = 0
    """Minimum output length, in symbols; 0 = no minimum."""
    max_length_ratio: Ratio = 0.0
    """Maximum output length as a multiple of the source length; the smaller of this and max_length applies; 0 = off.
    """
    max_length_offset: Offset = 0
    """Number of symbols added to the maximum of max_length_ratio; may be negative."""
    min_length_ratio: Ratio = 0.0
    """Minimum output length as a multiple of the source length; the larger of this and min_length applies; 0 = off."""
    min_length_offset: Offset = 0
    """Number of symbols added to the minimum of min_length_ratio; may be negative."""
    beam_size: BeamSize = 5
    """Hypotheses kept per source at each step; 1 is greedy search. N-best lists come from the same beam; a longer list
    enlarges it. Validation during training is always greedy."""
    length_normalization: Literal["none", "average", "gnmt"] = "none"
    """Divide the log-probability of a hypothesis by nothing (none), by its number of symbols including the end symbol
    (average), or by the GNMT length penalty (gnmt; Wu et al. 2016)."""
    length_penalty_alpha: Exponent = 0.6
    """Exponent alpha of the length penalty (with length_normalization = "gnmt")."""
    coverage_penalty: Penalty = 0.0
    """Weight of the coverage penalty (Wu et al. 2016), which lowers the score of a hypothesis for each source position
    with little attention; 0 = off."""
    pair_ngram: bool = True
    """Rank outputs by the network and by the pair n-gram model, if the run has one (training.pair_ngram); otherwise by
    the network alone. Validations during the training never use it."""
    batch_size: PositiveInt = 128
    """Maximum number of sources per batch in decoding; it changes speed and memory, not the outputs."""


class Config(Settings, frozen=True, kw_only=True):
    """All settings of a run."""

    size: Size = "base"
    """Model size preset: tiny, small, base or large. It sets layers, hidden, embedding and attention sizes, dropout
    and the learning rate, unless these are set explicitly."""
    task: TaskName = DEFAULT_TASK
    """Task: transduce (a sequence), tag (a tag per source symbol), classify (a class), point (a source position), or
    tag-and-classify (a class, then a tag per source symbol)."""
    seed: Seed = 1
    """Random seed of initial parameters, batch order, dropout, scheduled sampling and augmentation."""
    threads: Threads = 1
    """CPU threads for training, and for later commands with the run; 0 uses all cores. Results are bit-for-bit
    reproducible for the same number of threads."""
    device: Device = "cpu"
    """Device for training: cpu, cuda (one GPU), or auto (a GPU if there is one). Later commands have their own flag."""
    precision: Precision = "float32"
    """Precision of training: float32, or bf16 for matrix products in bfloat16, with sums in float32 (needs a GPU, or a
    CPU with avx512_bf16)."""
    deterministic: bool = False
    """Use only deterministic algorithms on a GPU; an operation without one is an error. The CPU is always
    deterministic."""
    cuda_graphs: bool = False
    """Record an update once per batch shape as a CUDA graph and replay it (GPU only; task = "transduce")."""
    data: DataConfig
    encoder: EncoderConfig
    attention: AttentionConfig
    decoder: DecoderConfig
    training: TrainingConfig
    search: SearchConfig


PATH_SETTINGS = {"encoder": ("pretrained",), "decoder": ("pretrained",), "training": ("init_from", "mix_in")}
"""Settings by section that hold the path of a file or of a run folder, which a training reads."""


def setting_paths(settings: object) -> list[Path]:
    """Return the files and run folders that settings name.

    Args:
        settings: Configuration, or flags, of which some may be sections of a configuration.
    """
    sections = [(getattr(settings, section, None), names) for section, names in PATH_SETTINGS.items()]
    paths = [getattr(section, name, "") for section, names in sections for name in names]
    return [Path(path) for path in paths if path]


@check_arguments
def memory_size(encoder: EncoderConfig) -> int:
    """Return D, the size of an encoder state: 2 H for concatenated directions, else H.

    Args:
        encoder: Configuration of the encoder, with H, its hidden size.
    """
    doubled = encoder.bidirectional and encoder.merge == "concatenate"
    return encoder.hidden_size * (2 if doubled else 1)


@check_arguments
def output_layer_input_size(inputs: ReadoutKind, hidden_size: int, memory_size: int) -> int:
    """Return the number of inputs of an output layer: H, D, or H + D.

    Args:
        inputs: Whether the layer reads the state, the context, or both.
        hidden_size: H.
        memory_size: D.
    """
    return {"state": hidden_size, "context": memory_size, "state-and-context": hidden_size + memory_size}[inputs]


def reads_features(config: DataConfig) -> bool:
    """Return whether examples have features: those of a column of the file, or the words around a source.

    Args:
        config: The data settings.
    """
    return bool(config.features_column) or config.context_words > 0


def reads_neighbors(config: DataConfig) -> bool:
    """Return whether the context of a source is read from the neighboring lines of a file, and not from a column.

    Args:
        config: The data settings.
    """
    return config.context_words > 0 and not config.features_column


@check_arguments
def has_source_features(config: Config) -> bool:
    """Return whether sources may have features: those of the data, or the feature that marks copied words.

    The augmentation "copy" adds the latter to the training pairs that it makes.

    Args:
        config: The configuration.
    """
    return reads_features(config.data) or config.training.augmentation == "copy"


@check_arguments
def has_characters(config: Config) -> bool:
    """Return whether the encoder reads the characters of source words.

    Args:
        config: The configuration.
    """
    return config.encoder.characters != "none"
