"""The protein networks of 2016, rebuilt from their stored weights and checked against the published numbers.

B proteins, S positions (400), F features a position (20 of a profile, or of filters), D memory, C locations (10).

Weights are lists of arrays in the order of the layers. All arithmetic is float64.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from pellucid.errors import DataError, abbreviate_reason
from pellucid.evaluation.label_metrics import matthews_correlation
from pellucid.files import make_folder, write_json
from pellucid.model.cells import Peepholes, PeepholeState, PeepholeStep, late_peephole_step, peephole_step
from pellucid.model.device import use_threads
from pellucid.model.memory import Memory, State
from pellucid.model.recurrence import reverse_sequence
from pellucid.recipes.digits.networks import ContextDecoder
from pellucid.recipes.recipe import RecipeRequest, ReproductionError
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
    """Inputs and targets of the networks."""

    profiles: Float[Tensor, "B S F"]
    """Frequency of each of the 20 amino acids at a position of related proteins; zero after the end."""
    lengths: Int[Tensor, " B"]
    places: Int[Tensor, " B"]


def classify_ffn(weights: Weights, proteins: ProteinProfiles) -> Float[Tensor, "B C"]:
    """Apply the FFN: concatenated positions, two dense layers."""
    return _classify(proteins.profiles.flatten(1), weights)


def classify_cnn(weights: Weights, proteins: ProteinProfiles) -> Float[Tensor, "B C"]:
    """Apply the CNN: convolutions, max-pooling over five positions, two dense layers."""
    features = _convolve_profiles(weights[CONVOLUTION_WEIGHTS], proteins.profiles).transpose(1, 2)
    pooled: Tensor = nn.functional.max_pool1d(features, POOL_SIZE)
    return _classify(pooled.flatten(1), weights[6:])


def classify_lstm(weights: Weights, proteins: ProteinProfiles) -> Float[Tensor, "B C"]:
    """Apply the CNN-LSTM: convolutions, a bidirectional LSTM, its final states, two dense layers."""
    memory = _encode(weights, proteins)
    return _classify(memory.final.hidden[:, -1], weights[40:])


def classify_attention(
    weights: Weights, proteins: ProteinProfiles, step: PeepholeStep = late_peephole_step
) -> Float[Tensor, "B C"]:
    """Apply the CNN-LSTM-attention: convolutions, a bidirectional LSTM, two decoder steps, two dense layers."""
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
        step: LSTM step, which places the output gate's peephole.
    """
    memory_size, units = weights[8].shape
    decoder = ContextDecoder(memory_size, units, weights[15].shape[1], step).double()
    own = {
        "hidden_weight": torch.cat(tuple(weights[0:8:2]), dim=1).T,
        "bias": torch.cat(tuple(weights[1:8:2])),
        "context_weight": torch.cat(tuple(weights[8:12]), dim=1).T,
        "enter_peephole": weights[12],
        "forget_peephole": weights[13],
        "leave_peephole": weights[14],
        "attention.query_projection.weight": weights[15].T,
        "attention.key_projection.weight": weights[16].T,
        "attention.key_projection.bias": weights[16].new_zeros(weights[16].shape[1]),
        "attention.energy": weights[17][:, 0],
    }
    decoder.load_state_dict(own)
    return decoder


def run_masked_lstm(
    inputs: Float[Tensor, "B S F"], lengths: Int[Tensor, " B"], weights: Weights
) -> Float[Tensor, "B S H"]:
    """Return the states of a peephole LSTM; after the end of a row its state is copied.

    Args:
        inputs: Input features.
        lengths: Positions of each row.
        weights: Input weight, hidden weight and bias of each of the gates i, f, g, o; peepholes; initial cell and
            hidden state.
    """
    given, recurrent = torch.cat(tuple(weights[0:12:3]), dim=1), torch.cat(tuple(weights[1:12:3]), dim=1)
    entering, peepholes = inputs @ given + torch.cat(tuple(weights[2:12:3])), Peepholes(*weights[12:15])
    state = PeepholeState(weights[16].expand(len(inputs), -1), weights[15].expand(len(inputs), -1))
    states = list[Tensor]()
    for place, sums in enumerate(entering.unbind(dim=1)):
        after, inside = peephole_step(sums + state.hidden @ recurrent, state, peepholes), (place < lengths)[:, None]
        state = PeepholeState(*(torch.where(inside, new, old) for new, old in zip(after, state, strict=True)))
        states.append(state.hidden)
    return torch.stack(states, dim=1)


def _encode(weights: Weights, proteins: ProteinProfiles) -> Memory:
    """Apply the convolutions and both LSTM directions; the backward one starts at each protein's end."""
    features, lengths = _convolve_profiles(weights[CONVOLUTION_WEIGHTS], proteins.profiles), proteins.lengths
    forward = run_masked_lstm(features, lengths, weights[6 : 6 + LSTM_WEIGHTS])
    mirrored = run_masked_lstm(_reverse(features, lengths), lengths, weights[6 + LSTM_WEIGHTS : 6 + 2 * LSTM_WEIGHTS])
    states = torch.cat([forward, _reverse(mirrored, lengths)], dim=2)
    final = torch.cat([forward[:, -1], mirrored[:, -1]], dim=1)
    return Memory(states, lengths, State(final[:, None]))


def _reverse(values: Float[Tensor, "B S F"], lengths: Int[Tensor, " B"]) -> Float[Tensor, "B S F"]:
    """Reverse each row within its length."""
    mirrored: Tensor = reverse_sequence(values, lengths)
    return mirrored


def _convolve_profiles(weights: Weights, profiles: Float[Tensor, "B S F"]) -> Float[Tensor, "B S F"]:
    """Apply convolutions of widths 3 and 5 in parallel, then one of width 3."""
    inputs = profiles.transpose(1, 2)
    both = torch.cat([_convolve(inputs, *weights[0:2]), _convolve(inputs, *weights[2:4])], dim=1)
    return _convolve(both, *weights[4:6]).transpose(1, 2)


def _convolve(inputs: Float[Tensor, "B F S"], filters: Tensor, bias: Tensor) -> Float[Tensor, "B G S"]:
    """Apply a true convolution (flipped filters) with ReLU and same length; PyTorch computes a correlation."""
    return torch.relu(nn.functional.conv1d(inputs, filters.flip(2), bias, padding="same"))


def _classify(features: Float[Tensor, "B D"], weights: Weights) -> Float[Tensor, "B C"]:
    """Apply a dense layer with ReLU and one without."""
    return torch.relu(features @ weights[0] + weights[1]) @ weights[2] + weights[3]


NAME, NUM_LOCATIONS = "protein-golden", 10
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

Here Pellucid's own layers take those weights: convolutions, LSTMs with peepholes whose states are copied over padding,
the attention decoder with two steps, dense layers, in double precision. Nothing is trained. If the layers are correct,
they reproduce the published numbers; where one differs, the recipe fails.

In the decoder the output gate's peephole is added after the sigmoid. That was a bug of the library, and the weights
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
    """Mean cross-entropy."""
    counts: Int[Tensor, "C C"]
    """Confusion matrix: location by prediction."""
    parameters: int
    """Number of stored values, including untrained initial states."""

    @property
    def right(self) -> int:
        """Return the number of correct predictions."""
        return int(self.counts.trace())

    @property
    def accuracy(self) -> float:
        """Return the accuracy."""
        return self.right / int(self.counts.sum())

    @property
    def recalls(self) -> list[float]:
        """Return the recall of each location."""
        shares: list[float] = (self.counts.diagonal() / self.counts.sum(dim=1)).tolist()
        return shares


class NumberCheck(NamedTuple):
    """A computed number and the published one."""

    network: str
    measure: str
    ours: float
    published: str
    """As printed."""

    @property
    def digits(self) -> int:
        """Return the number of decimals."""
        return len(self.published.partition(".")[2])

    @property
    def agrees(self) -> bool:
        """Return True if the computed number rounds to the published one."""
        return abs(self.ours - float(self.published)) <= 0.5 * 10.0**-self.digits + 1e-9


def run_golden(request: RecipeRequest) -> Iterator[str]:
    """Evaluate the four networks and compare with the published numbers.

    Args:
        request: The recipe's request.

    Yields:
        A line per number and the path of the report.

    Raises:
        ReproductionError: Numbers differ by more than rounding; the message lists them.
    """
    use_threads(1)
    make_folder(request.out)
    folder = request.data / NAME
    proteins = read_validation_set(folder)
    scores = {name: score_network(folder, name, name, proteins) for name in NETWORKS}
    checks = check_numbers(scores, score_network(folder, ATTENTION, "moved", proteins))
    for each in checks:
        verdict = "equal" if each.agrees else "DIFFERENT"
        yield f"{each.network:<19}{each.measure:<33}{_format_ours(each):>10}  published {each.published:<9}{verdict}"
    write_report(request.out / "report.html", _report_page(scores, checks))
    write_json(request.out / "report.json", _report_json(scores, checks))
    yield f"report: {request.out / 'report.html'}"
    wrong = [each for each in checks if not each.agrees]
    if wrong:
        listed = "; ".join(
            f"{each.network}, {each.measure}: {_format_ours(each)}, not {each.published}" for each in wrong
        )
        raise ReproductionError(f"{len(wrong)} of {len(checks)} numbers are not the published ones: {listed}")


def read_validation_set(folder: Path) -> ProteinProfiles:
    """Read the 635 proteins.

    Raises:
        DataError: The file is missing or has other content.
    """
    stored = _load_arrays(folder / "reduced_val.npz", ("X_val", "y_val", "mask_val"))
    profiles, places, mask = (torch.from_numpy(each) for each in stored)
    return ProteinProfiles(profiles.double(), mask.sum(dim=1).long(), places.long())


@torch.inference_mode()
def score_network(folder: Path, file: str, network: str, proteins: ProteinProfiles) -> StoredNetworkScores:
    """Evaluate a network.

    Args:
        folder: Folder of the weights.
        file: Beginning of the weights' file name.
        network: Key of `NETWORKS`, or "moved" for the corrected peephole.
        proteins: The proteins.
    """
    weights = [torch.from_numpy(each).double() for each in _load_arrays(folder / f"{file}_params.npz")]
    logits: Float[Tensor, "B C"] = (CORRECTED_PEEPHOLE if network == "moved" else NETWORKS[network])(weights, proteins)
    pairs = proteins.places * NUM_LOCATIONS + logits.argmax(dim=1)
    counts = torch.bincount(pairs, minlength=NUM_LOCATIONS * NUM_LOCATIONS).view(NUM_LOCATIONS, NUM_LOCATIONS)
    loss = float(nn.functional.cross_entropy(logits, proteins.places))
    return StoredNetworkScores(loss, counts, sum(each.numel() for each in weights))


def check_numbers(scores: dict[str, StoredNetworkScores], moved: StoredNetworkScores) -> list[NumberCheck]:
    """Return every published or ported number with the computed one."""
    checks = [
        NumberCheck(name, f"{measure}{by}", getattr(scores[name], measure), value)
        for by, table in (("", PUBLISHED), (", port", PORTED))
        for name, values in table.items()
        for measure, value in zip(("loss", "accuracy"), values, strict=True)
    ]
    best = scores[ATTENTION]
    checks += [
        NumberCheck(ATTENTION, "proteins right, port", best.right, NUM_CORRECT),
        NumberCheck(ATTENTION, "correlation, port", matthews_correlation(best.counts.numpy()), CORRELATION),
        NumberCheck(ATTENTION, "loss, peephole in its place", moved.loss, CORRECTED_LOSS),
        NumberCheck(ATTENTION, "right, peephole in its place", moved.right, NUM_CORRECT),
    ]
    recalls = zip(LOCATION_NAMES, best.recalls, RECALLS, strict=True)
    return checks + [NumberCheck(ATTENTION, f"recall, {name}", ours, theirs) for name, ours, theirs in recalls]


def _report_page(scores: dict[str, StoredNetworkScores], checks: Sequence[NumberCheck]) -> Report:
    """Return the page."""
    best, equal = scores[ATTENTION], sum(each.agrees for each in checks)
    summary = [
        ("numbers equal", f"{equal} of {len(checks)}"),
        ("loss with attention", f"{best.loss:.6f}"),
        ("proteins right", f"{best.right} of {int(best.counts.sum())}"),
        ("correlation", f"{matthews_correlation(best.counts.numpy()):.4f}"),
    ]
    rows = [
        (
            *(name, f"{each.loss:.6f}", PUBLISHED[name][0], f"{each.accuracy:.4f}", PUBLISHED[name][1]),
            *(f"{matthews_correlation(each.counts.numpy()):.4f}", f"{each.parameters:,}"),
        )
        for name, each in scores.items()
    ]
    heads = ("network", "loss", "published", "accuracy", "published", "correlation", "numbers stored")
    parts = [
        ReportTable("The four networks", "Correlation: Matthews' for several classes (Gorodkin 2004).", heads, rows),
        ReportTable(
            "All numbers",
            "Port: the same weights in an independent port of the original code.",
            ("network", "number", "ours", "published", "equal"),
            [
                (each.network, each.measure, _format_ours(each), each.published, "yes" if each.agrees else "no")
                for each in checks
            ],
        ),
        ReportTable(
            "What attention takes for what",
            "Rows: where a protein works; columns: what was answered, by the first letters.",
            ("place", *(name[:4] for name in LOCATION_NAMES), "right"),
            [
                (name, *(str(count) for count in row), f"{100 * share:.1f} %")
                for name, row, share in zip(LOCATION_NAMES, best.counts.tolist(), best.recalls, strict=True)
            ],
        ),
    ]
    return Report(title="The protein networks of 2016", introduction=INTRODUCTION, summary=summary, parts=parts)


def _report_json(scores: dict[str, StoredNetworkScores], checks: Sequence[NumberCheck]) -> dict[str, object]:
    """Return report.json."""
    networks = {
        name: {
            **{"loss": each.loss, "accuracy": each.accuracy, "right": each.right, "recalls": each.recalls},
            **{
                "correlation": matthews_correlation(each.counts.numpy()),
                "parameters": each.parameters,
                "counts": each.counts.tolist(),
            },
        }
        for name, each in scores.items()
    }
    listed = [{**each._asdict(), "agrees": each.agrees} for each in checks]
    return {"name": NAME, "places": list(LOCATION_NAMES), "networks": networks, "checks": listed}


def _format_ours(check: NumberCheck) -> str:
    """Return the computed number with as many decimals as the published one."""
    return f"{check.ours:.{check.digits}f}"


def _load_arrays(path: Path, names: Sequence[str] = ()) -> list[np.ndarray]:
    """Load the named arrays of a file, or arr_0, arr_1, ….

    Raises:
        DataError: The file is missing or lacks an array.
    """
    if not path.exists():
        raise DataError(
            f"{path} does not exist: the weights are those of {ORIGIN}; give the folder that holds them as {NAME} with "
            "--data, or in PELLUCID_DATA"
        )
    try:
        with np.load(path) as stored:
            return [stored[name] for name in names or [f"arr_{at}" for at in range(len(stored.files))]]
    except (ValueError, KeyError, OSError) as error:
        raise DataError(f"{path} does not hold the arrays it should: {abbreviate_reason(error)}") from error
