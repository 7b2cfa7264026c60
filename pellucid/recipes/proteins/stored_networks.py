"""The protein networks of 2016, rebuilt from their stored weights and checked against the published numbers.

B proteins, S positions (400), F features a position (20 of a profile, or of filters), D memory, C locations (10), G
filters of a convolution.

Weights are lists of arrays in the order of the layers. All arithmetic is float64.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from pellucid.errors import DataError, abbreviate_reason
from pellucid.evaluation.label_metrics import matthews_correlation
from pellucid.files import make_folder, write_json
from pellucid.model.cells import Peepholes, PeepholeState, PeepholeStep, late_peephole_step, peephole_step
from pellucid.model.device import use_threads
from pellucid.model.memory import DecoderState, Memory
from pellucid.model.recurrence import reverse_sequence
from pellucid.recipes.digits.networks import ContextDecoder
from pellucid.recipes.published_data import describe_download
from pellucid.recipes.recipe import RecipeRequest, ReproductionError
from pellucid.shapes import Float, Int
from pellucid.viewer.report_schema import ReportTable
from pellucid.viewer.reports import Report, write_report

Weights = Sequence[Tensor]
POOL_SIZE = 5
"""Positions of a max-pooling window of the CNN."""
CONVOLUTION_WEIGHTS, LSTM_WEIGHTS, DECODER_WEIGHTS = slice(0, 6), 17, slice(40, 60)
"""Arrays of the three convolutions, number of arrays of one LSTM direction, arrays of the decoder."""
DECODER_STEPS = 2
"""Steps of the attention decoder; the classifier reads the last context."""


class ProteinProfiles(NamedTuple):
    """Inputs and targets of the networks, for B proteins."""

    profiles: Float[Tensor, "B S F"]
    """Frequency of each of the 20 amino acids at a position of related proteins; zero after the end."""
    lengths: Int[Tensor, " B"]
    """Number of positions of each protein, at most S."""
    locations: Int[Tensor, " B"]
    """Index of each true location in `LOCATION_NAMES`."""


def classify_ffn(weights: Weights, proteins: ProteinProfiles) -> Float[Tensor, "B C"]:
    """Apply the feed-forward network: the concatenated positions, two dense layers.

    Args:
        weights: Weights of both layers.
        proteins: The proteins.

    Returns:
        Logits of the locations.
    """
    return _classify(proteins.profiles.flatten(1), weights)


def classify_cnn(weights: Weights, proteins: ProteinProfiles) -> Float[Tensor, "B C"]:
    """Apply the CNN: convolutions, max-pooling over five positions, two dense layers.

    Args:
        weights: Weights of all layers.
        proteins: The proteins.

    Returns:
        Logits of the locations.
    """
    features = _convolve_profiles(weights[CONVOLUTION_WEIGHTS], proteins.profiles).transpose(1, 2)
    pooled: Tensor = nn.functional.max_pool1d(features, POOL_SIZE)
    return _classify(pooled.flatten(1), weights[6:])


def classify_lstm(weights: Weights, proteins: ProteinProfiles) -> Float[Tensor, "B C"]:
    """Apply the CNN-LSTM: convolutions, a bidirectional LSTM, its final states, two dense layers.

    Args:
        weights: Weights of all layers.
        proteins: The proteins.

    Returns:
        Logits of the locations.
    """
    memory = _encode(weights, proteins)
    return _classify(memory.final.hidden[:, -1], weights[40:])


def classify_attention(
    weights: Weights, proteins: ProteinProfiles, step: PeepholeStep = late_peephole_step
) -> Float[Tensor, "B C"]:
    """Apply the CNN-LSTM-attention: convolutions, a bidirectional LSTM, two decoder steps, two dense layers.

    Args:
        weights: Weights of all layers.
        proteins: The proteins.
        step: LSTM step of the decoder, with the output gate's peephole after the sigmoid (as the weights were trained)
            or before it (`peephole_step`).

    Returns:
        Logits of the locations.
    """
    contexts, _ = load_decoder(weights[DECODER_WEIGHTS], step)(_encode(weights, proteins), DECODER_STEPS)
    return _classify(contexts[:, -1], weights[60:])


NETWORKS: Mapping[str, Callable[[Weights, ProteinProfiles], Float[Tensor, "B C"]]] = {
    "FFN": classify_ffn,
    "CNN": classify_cnn,
    "CNN-LSTM": classify_lstm,
    "CNN-LSTM-Attention": classify_attention,
}
"""Networks by the beginning of their file names."""
CORRECTED_PEEPHOLE = partial(classify_attention, step=peephole_step)
"""Attention network with the output gate's peephole before the sigmoid."""


def load_decoder(weights: Weights, step: PeepholeStep) -> ContextDecoder:
    """Return the attention decoder of the digit lessons with stored weights.

    Args:
        weights: Hidden weight and bias of each of the gates i, f, g, o; context weights of the gates; peepholes; W, U,
            v of attention; an initial state, which is zero.
        step: LSTM step, with the output gate's peephole after the sigmoid or before it.
    """
    memory_size, units = weights[8].shape
    decoder = ContextDecoder(memory_size, units, weights[15].shape[1], step).double()
    state_dict = {
        "hidden_weight": torch.cat(tuple(weights[0:8:2]), dim=1).T,
        "bias": torch.cat(tuple(weights[1:8:2])),
        "context_weight": torch.cat(tuple(weights[8:12]), dim=1).T,
        "input_peephole": weights[12],
        "forget_peephole": weights[13],
        "output_peephole": weights[14],
        "attention.query_projection.weight": weights[15].T,
        "attention.key_projection.weight": weights[16].T,
        "attention.key_projection.bias": weights[16].new_zeros(weights[16].shape[1]),
        "attention.energy": weights[17][:, 0],
    }
    decoder.load_state_dict(state_dict)
    return decoder


def run_masked_lstm(
    inputs: Float[Tensor, "B S F"], lengths: Int[Tensor, " B"], weights: Weights
) -> Float[Tensor, "B S H"]:
    """Return the hidden states of a unidirectional peephole LSTM; after the end of a row its last state is copied.

    Args:
        inputs: Input features.
        lengths: Number of positions of each row.
        weights: Input weight, hidden weight and bias of each of the gates i, f, g, o; peepholes; initial cell and
            hidden state.
    """
    input_weight, hidden_weight = torch.cat(tuple(weights[0:12:3]), dim=1), torch.cat(tuple(weights[1:12:3]), dim=1)
    projected, peepholes = inputs @ input_weight + torch.cat(tuple(weights[2:12:3])), Peepholes(*weights[12:15])
    state = PeepholeState(weights[16].expand(len(inputs), -1), weights[15].expand(len(inputs), -1))
    states = list[Tensor]()
    for position, projected_input in enumerate(projected.unbind(dim=1)):
        new_state = peephole_step(projected_input + state.hidden @ hidden_weight, state, peepholes)
        mask = (position < lengths)[:, None]
        state = PeepholeState(*(torch.where(mask, new, old) for new, old in zip(new_state, state, strict=True)))
        states.append(state.hidden)
    return torch.stack(states, dim=1)


def _encode(weights: Weights, proteins: ProteinProfiles) -> Memory:
    """Apply the convolutions and both LSTM directions; the backward one starts at each protein's end."""
    features, lengths = _convolve_profiles(weights[CONVOLUTION_WEIGHTS], proteins.profiles), proteins.lengths
    forward = run_masked_lstm(features, lengths, weights[6 : 6 + LSTM_WEIGHTS])
    backward_weights = weights[6 + LSTM_WEIGHTS : 6 + 2 * LSTM_WEIGHTS]
    backward = run_masked_lstm(_reverse(features, lengths), lengths, backward_weights)
    states = torch.cat([forward, _reverse(backward, lengths)], dim=2)
    final = torch.cat([forward[:, -1], backward[:, -1]], dim=1)
    return Memory(states, lengths, DecoderState(final[:, None]))


def _reverse(values: Float[Tensor, "B S F"], lengths: Int[Tensor, " B"]) -> Float[Tensor, "B S F"]:
    """Reverse each row within its length."""
    reversed_values: Tensor = reverse_sequence(values, lengths)
    return reversed_values


def _convolve_profiles(weights: Weights, profiles: Float[Tensor, "B S F"]) -> Float[Tensor, "B S F"]:
    """Apply convolutions of widths 3 and 5 in parallel, then one of width 3."""
    inputs = profiles.transpose(1, 2)
    features = torch.cat([_convolve(inputs, *weights[0:2]), _convolve(inputs, *weights[2:4])], dim=1)
    return _convolve(features, *weights[4:6]).transpose(1, 2)


def _convolve(inputs: Float[Tensor, "B F S"], filters: Tensor, bias: Tensor) -> Float[Tensor, "B G S"]:
    """Apply a true convolution (flipped filters) with ReLU and same length; PyTorch computes a correlation."""
    return torch.relu(nn.functional.conv1d(inputs, filters.flip(2), bias, padding="same"))


def _classify(features: Float[Tensor, "B D"], weights: Weights) -> Float[Tensor, "B C"]:
    """Apply a dense layer with ReLU and one without."""
    return torch.relu(features @ weights[0] + weights[1]) @ weights[2] + weights[3]


NAME, DATA_FOLDER, NUM_LOCATIONS = "protein-pretrained", "protein-golden", 10
ATTENTION = "CNN-LSTM-Attention"
LOCATION_NAMES = (
    *("nucleus", "cytoplasm", "extracellular", "mitochondrion", "cell membrane"),
    *("endoplasmic reticulum", "chloroplast", "Golgi apparatus", "lysosome or vacuole", "peroxisome"),
)
"""Locations by class; the last two are inferred from the confusion matrix."""
ORIGIN = "github.com/JJAlmagro/subcellular_localization: reduced_val.npz and the four files *_params.npz"
INTRODUCTION = """\
In 2016 the attention decoder of the third digit lesson was trained on proteins. Its input is the profile of a
protein: the frequency of each amino acid in related proteins, at each of at most 400 positions. Its output is one of
ten subcellular locations. The weights of four networks are stored, with the 635 proteins of their evaluation.

Here Pellucid's own layers load those weights: convolutions, LSTMs with peepholes whose states are copied over padding,
the attention decoder with two steps, dense layers, in double precision. Nothing is trained. If the layers are correct,
they reproduce the published numbers; if one number differs, the recipe fails.

In the decoder the output gate's peephole is added after the sigmoid. This was a bug of the library, and the weights
were trained with it: with the corrected peephole the loss differs."""
PUBLISHED = {
    "FFN": ("0.825", "0.757"),
    "CNN": ("0.715", "0.783"),
    "CNN-LSTM": ("0.672", "0.814"),
    ATTENTION: ("0.625", "0.830"),
}
"""Loss and accuracy published with the weights."""
PORTED = {"FFN": ("0.8249", "0.7575"), "CNN-LSTM": ("0.6724", "0.8142"), ATTENTION: ("0.624966", "0.8299")}
"""Loss and accuracy of an independent port in double precision."""
NUM_CORRECT, CORRELATION, CORRECTED_LOSS = "527", "0.7983", "0.6252"
"""By the same port: correct predictions with attention, their correlation, and the loss with the corrected peephole."""
RECALLS = ("0.821", "0.848", "0.962", "0.703", "0.942", "0.308", "0.917", "0.667", "0.368", "0.467")
"""By the same port: recall of each location with attention."""


class StoredNetworkScores(NamedTuple):
    """Scores of a network on the 635 proteins."""

    loss: float
    """Mean cross-entropy, in nats."""
    counts: Int[Tensor, "C C"]
    """Confusion matrix: location by prediction."""
    parameters: int
    """Number of stored values, including untrained initial states."""

    @property
    def num_correct(self) -> int:
        """Return the number of correct predictions."""
        return int(self.counts.trace())

    @property
    def accuracy(self) -> float:
        """Return the accuracy, as a fraction."""
        return self.num_correct / int(self.counts.sum())

    @property
    def recalls(self) -> list[float]:
        """Return the recall of each location, as a fraction; NaN for a location without a protein."""
        recalls: list[float] = (self.counts.diagonal() / self.counts.sum(dim=1)).tolist()
        return recalls


class NumberCheck(NamedTuple):
    """A computed number and the published one."""

    network: str
    """Name of the network, a key of `NETWORKS`."""
    metric: str
    """Description of the number."""
    computed: float
    published: str
    """Published number as printed."""

    @property
    def digits(self) -> int:
        """Return the number of decimals of the published number."""
        return len(self.published.partition(".")[2])

    @property
    def agrees(self) -> bool:
        """Return True if the computed number rounds to the published one."""
        return abs(self.computed - float(self.published)) <= 0.5 * 10.0**-self.digits + 1e-9


def run_pretrained(request: RecipeRequest) -> Iterator[str]:
    """Evaluate the four stored networks and compare their scores with the published numbers; nothing is trained.

    The process then computes with one thread.

    Args:
        request: The recipe's request; only the data and output folders are used.

    Yields:
        A line per number and the path of the report.

    Raises:
        ReproductionError: Numbers differ by more than rounding; the message lists them. The report is written before.
        DataError: A file of weights or proteins is missing or has other content.
        RunError: A report cannot be written.
    """
    use_threads(1)
    make_folder(request.out)
    folder = request.data / DATA_FOLDER
    proteins = read_validation_proteins(folder)
    scores = {name: score_network(folder, name, name, proteins) for name in NETWORKS}
    checks = check_numbers(scores, score_network(folder, ATTENTION, "corrected", proteins))
    for check in checks:
        verdict = "equal" if check.agrees else "DIFFERENT"
        computed = _format_computed(check)
        yield f"{check.network:<19}{check.metric:<33}{computed:>10}  published {check.published:<9}{verdict}"
    write_report(request.out / "report.html", _report_page(scores, checks))
    write_json(request.out / "report.json", _report_json(scores, checks))
    yield f"report: {request.out / 'report.html'}"
    failed = [check for check in checks if not check.agrees]
    if failed:
        listed = "; ".join(
            f"{check.network}, {check.metric}: {_format_computed(check)}, not {check.published}" for check in failed
        )
        raise ReproductionError(f"{len(failed)} of {len(checks)} numbers are not the published ones: {listed}")


def read_validation_proteins(folder: Path) -> ProteinProfiles:
    """Read the profiles of the 635 validation proteins.

    Args:
        folder: Data folder with reduced_val.npz.

    Returns:
        Profiles, lengths and locations of the proteins.

    Raises:
        DataError: The file is missing, is not an npz file, or lacks an array.
    """
    arrays = _load_arrays(folder / "reduced_val.npz", ("X_val", "y_val", "mask_val"))
    profiles, locations, mask = (torch.from_numpy(array) for array in arrays)
    return ProteinProfiles(profiles.double(), mask.sum(dim=1).long(), locations.long())


@torch.inference_mode()
def score_network(folder: Path, file: str, network: str, proteins: ProteinProfiles) -> StoredNetworkScores:
    """Load the weights of a network and evaluate it.

    Args:
        folder: Folder of the weights.
        file: Beginning of the weights' file name.
        network: Key of `NETWORKS`, or "corrected" for the corrected peephole.
        proteins: The proteins.

    Returns:
        Loss, confusion matrix and number of stored values.

    Raises:
        DataError: The file of the weights is missing, or is not an npz file of arrays.
    """
    weights = [torch.from_numpy(array).double() for array in _load_arrays(folder / f"{file}_params.npz")]
    logits: Float[Tensor, "B C"] = (CORRECTED_PEEPHOLE if network == "corrected" else NETWORKS[network])(
        weights, proteins
    )
    cells = proteins.locations * NUM_LOCATIONS + logits.argmax(dim=1)
    counts = torch.bincount(cells, minlength=NUM_LOCATIONS * NUM_LOCATIONS).view(NUM_LOCATIONS, NUM_LOCATIONS)
    loss = float(nn.functional.cross_entropy(logits, proteins.locations))
    return StoredNetworkScores(loss, counts, sum(array.numel() for array in weights))


def check_numbers(scores: dict[str, StoredNetworkScores], corrected: StoredNetworkScores) -> list[NumberCheck]:
    """Return a check of every published number and of every number of the independent port.

    Args:
        scores: Scores of each network.
        corrected: Scores of the attention network with the corrected peephole.
    """
    checks = [
        NumberCheck(name, f"{metric}{source}", getattr(scores[name], metric), value)
        for source, table in (("", PUBLISHED), (", port", PORTED))
        for name, values in table.items()
        for metric, value in zip(("loss", "accuracy"), values, strict=True)
    ]
    attention = scores[ATTENTION]
    checks += [
        NumberCheck(ATTENTION, "correct predictions, port", attention.num_correct, NUM_CORRECT),
        NumberCheck(ATTENTION, "correlation, port", matthews_correlation(attention.counts.numpy()), CORRELATION),
        NumberCheck(ATTENTION, "loss, corrected peephole", corrected.loss, CORRECTED_LOSS),
        NumberCheck(ATTENTION, "correct, corrected peephole", corrected.num_correct, NUM_CORRECT),
    ]
    recalls = zip(LOCATION_NAMES, attention.recalls, RECALLS, strict=True)
    return checks + [
        NumberCheck(ATTENTION, f"recall, {name}", computed, published) for name, computed, published in recalls
    ]


def _report_page(scores: dict[str, StoredNetworkScores], checks: Sequence[NumberCheck]) -> Report:
    """Return the page."""
    attention, num_equal = scores[ATTENTION], sum(check.agrees for check in checks)
    summary = [
        ("numbers equal", f"{num_equal} of {len(checks)}"),
        ("loss with attention", f"{attention.loss:.6f}"),
        ("correct predictions", f"{attention.num_correct} of {int(attention.counts.sum())}"),
        ("correlation", f"{matthews_correlation(attention.counts.numpy()):.4f}"),
    ]
    rows = [
        (
            *(name, f"{network.loss:.6f}", PUBLISHED[name][0], f"{network.accuracy:.4f}", PUBLISHED[name][1]),
            *(f"{matthews_correlation(network.counts.numpy()):.4f}", f"{network.parameters:,}"),
        )
        for name, network in scores.items()
    ]
    heads = ("network", "loss", "published", "accuracy", "published", "correlation", "stored values")
    parts = [
        ReportTable("The four networks", "Correlation: Matthews' for several classes (Gorodkin 2004).", heads, rows),
        ReportTable(
            "All numbers",
            "Port: the same weights in an independent port of the original code.",
            ("network", "metric", "computed", "published", "equal"),
            [
                (
                    *(check.network, check.metric, _format_computed(check), check.published),
                    "yes" if check.agrees else "no",
                )
                for check in checks
            ],
        ),
        ReportTable(
            "Confusion matrix of the network with attention",
            "A row is a true location, a column a predicted one, by its first letters.",
            ("location", *(name[:4] for name in LOCATION_NAMES), "recall"),
            [
                (name, *(str(count) for count in row), f"{100 * recall:.1f} %")
                for name, row, recall in zip(LOCATION_NAMES, attention.counts.tolist(), attention.recalls, strict=True)
            ],
        ),
    ]
    return Report(title="The protein networks of 2016", introduction=INTRODUCTION, summary=summary, parts=parts)


def _report_json(scores: dict[str, StoredNetworkScores], checks: Sequence[NumberCheck]) -> dict[str, object]:
    """Return report.json."""
    networks = {
        name: {
            **{"loss": network.loss, "accuracy": network.accuracy},
            **{"num_correct": network.num_correct, "recalls": network.recalls},
            **{
                "correlation": matthews_correlation(network.counts.numpy()),
                "parameters": network.parameters,
                "counts": network.counts.tolist(),
            },
        }
        for name, network in scores.items()
    }
    listed = [{**check._asdict(), "agrees": check.agrees} for check in checks]
    return {"name": NAME, "locations": list(LOCATION_NAMES), "networks": networks, "checks": listed}


def _format_computed(check: NumberCheck) -> str:
    """Return the computed number with as many decimals as the published one."""
    return f"{check.computed:.{check.digits}f}"


def _load_arrays(path: Path, names: Sequence[str] = ()) -> list[np.ndarray]:
    """Load the named arrays of a file, or arr_0, arr_1, ….

    Raises:
        DataError: The file is missing or lacks an array.
    """
    if not path.exists():
        raise DataError(f"{path} does not exist: the weights are from {ORIGIN}; {describe_download(DATA_FOLDER)}")
    try:
        with np.load(path) as arrays:
            return [arrays[name] for name in names or [f"arr_{index}" for index in range(len(arrays.files))]]
    except (ValueError, KeyError, OSError) as error:
        raise DataError(f"{path} does not hold the expected arrays: {abbreviate_reason(error)}") from error
