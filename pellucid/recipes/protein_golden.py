"""The places of 635 proteins by the networks of 2016, whose weights were kept: are they the published numbers?"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from pellucid.errors import DataError, abbreviate_reason
from pellucid.evaluation.label_metrics import correlation
from pellucid.files import make_folder, write_json
from pellucid.model.device import use_threads
from pellucid.recipes.proteins.imported import NETWORKS, RIGHT_PEEPHOLE, Proteins
from pellucid.recipes.recipe import MismatchError, Request
from pellucid.viewer.report_schema import ReportTable
from pellucid.viewer.reports import Report, write_report

NAME, PLACES = "protein-golden", 10
ATTENTION = "CNN-LSTM-Attention"
NAMES = (
    *("nucleus", "cytoplasm", "extracellular", "mitochondrion", "cell membrane"),
    *("endoplasmic reticulum", "chloroplast", "Golgi apparatus", "lysosome or vacuole", "peroxisome"),
)
"""The places by their numbers; the last two were inferred from what is confused with what."""
ORIGIN = "github.com/JJAlmagro/subcellular_localization: reduced_val.npz and the four files *_params.npz"
INTRODUCTION = """In 2016 the attention decoder of the third digit lesson was trained on proteins: from the profile of
a protein, how often each amino acid stands at each of at most 400 positions in its relatives, to the one of ten places
in the cell where it works. The weights of four networks were kept, and the 635 proteins they were judged on.

Here Pellucid's own layers take those weights: convolutions, LSTMs with peepholes that stand still over padding, the
attention decoder with two looks, dense layers, in double precision. Nothing is trained. If the layers are what they
are said to be, the published numbers come out; where one does not, the recipe fails.

In the decoder the output gate's peephole is added after the sigmoid. That was a mistake of the library then, and the
weights were trained with it: with the peephole in its right place the loss is another."""
PUBLISHED = {
    "FFN": ("0.825", "0.757"),
    "CNN": ("0.715", "0.783"),
    "CNN-LSTM": ("0.672", "0.814"),
    ATTENTION: ("0.625", "0.830"),
}
"""Loss and accuracy that were published with the weights."""
PORTED = {"FFN": ("0.8249", "0.7575"), "CNN-LSTM": ("0.6724", "0.8142"), ATTENTION: ("0.624966", "0.8299")}
"""The same by an independent port in double precision."""
RIGHT, CORRELATION, MOVED_LOSS = "527", "0.7983", "0.6252"
"""By the same port: proteins that attention has right, its correlation, and its loss with the peephole moved."""
RECALLS = ("0.821", "0.848", "0.962", "0.703", "0.942", "0.308", "0.917", "0.667", "0.368", "0.467")
"""By the same port: the share of the proteins of each place that attention has right."""


class Judged(NamedTuple):
    """What a network is worth on the 635."""

    loss: float
    """Mean cross-entropy."""
    counts: Int[Tensor, "C C"]
    """Proteins by place (rows) and answer (columns)."""
    parameters: int
    """Stored numbers, initial states that were not trained included."""

    @property
    def right(self) -> int:
        """Proteins right."""
        return int(self.counts.trace())

    @property
    def accuracy(self) -> float:
        """Share right."""
        return self.right / int(self.counts.sum())

    @property
    def recalls(self) -> list[float]:
        """Share right of each place's proteins."""
        shares: list[float] = (self.counts.diagonal() / self.counts.sum(dim=1)).tolist()
        return shares


class Check(NamedTuple):
    """A number beside a published one."""

    network: str
    measure: str
    ours: float
    published: str
    """As it was printed."""

    @property
    def digits(self) -> int:
        """Behind the point."""
        return len(self.published.partition(".")[2])

    @property
    def agrees(self) -> bool:
        """Whether ours, rounded to the printed digits, is what was printed, to a unit of rounding's doubt."""
        return abs(self.ours - float(self.published)) <= 0.5 * 10.0**-self.digits + 1e-9


def run(request: Request) -> Iterator[str]:
    """Judge the four networks and compare; `MismatchError` names every number that differs by more than rounding."""
    use_threads(1)
    make_folder(request.out)
    folder = request.data / NAME
    proteins = read_proteins(folder)
    judged = {name: judge(folder, name, name, proteins) for name in NETWORKS}
    checks = checks_of(judged, judge(folder, ATTENTION, "moved", proteins))
    for each in checks:
        verdict = "equal" if each.agrees else "DIFFERENT"
        yield f"{each.network:<19}{each.measure:<33}{_shown(each):>10}  published {each.published:<9}{verdict}"
    write_report(request.out / "report.html", _report(judged, checks))
    write_json(request.out / "report.json", _told(judged, checks))
    yield f"report: {request.out / 'report.html'}"
    wrong = [each for each in checks if not each.agrees]
    if wrong:
        listed = "; ".join(f"{each.network}, {each.measure}: {_shown(each)}, not {each.published}" for each in wrong)
        raise MismatchError(f"{len(wrong)} of {len(checks)} numbers are not the published ones: {listed}")


def read_proteins(folder: Path) -> Proteins:
    """The proteins the networks were judged on; `DataError` where a file is missing or is another."""
    stored = _arrays(folder / "reduced_val.npz", ("X_val", "y_val", "mask_val"))
    profiles, places, mask = (torch.from_numpy(each) for each in stored)
    return Proteins(profiles.double(), mask.sum(dim=1).long(), places.long())


@torch.inference_mode()
def judge(folder: Path, file: str, network: str, proteins: Proteins) -> Judged:
    """The network of a name, or with its peephole "moved", with the weights of a file."""
    weights = [torch.from_numpy(each).double() for each in _arrays(folder / f"{file}_params.npz")]
    logits: Float[Tensor, "B C"] = (RIGHT_PEEPHOLE if network == "moved" else NETWORKS[network])(weights, proteins)
    pairs = proteins.places * PLACES + logits.argmax(dim=1)
    counts = torch.bincount(pairs, minlength=PLACES * PLACES).view(PLACES, PLACES)
    loss = float(nn.functional.cross_entropy(logits, proteins.places))
    return Judged(loss, counts, sum(each.numel() for each in weights))


def checks_of(judged: dict[str, Judged], moved: Judged) -> list[Check]:
    """Every number that was published, or found by the port, beside ours."""
    checks = [
        Check(name, f"{measure}{by}", getattr(judged[name], measure), value)
        for by, table in (("", PUBLISHED), (", port", PORTED))
        for name, values in table.items()
        for measure, value in zip(("loss", "accuracy"), values, strict=True)
    ]
    best = judged[ATTENTION]
    checks += [
        Check(ATTENTION, "proteins right, port", best.right, RIGHT),
        Check(ATTENTION, "correlation, port", correlation(best.counts.numpy()), CORRELATION),
        Check(ATTENTION, "loss, peephole in its place", moved.loss, MOVED_LOSS),
        Check(ATTENTION, "right, peephole in its place", moved.right, RIGHT),
    ]
    recalls = zip(NAMES, best.recalls, RECALLS, strict=True)
    return checks + [Check(ATTENTION, f"recall, {name}", ours, theirs) for name, ours, theirs in recalls]


def _report(judged: dict[str, Judged], checks: Sequence[Check]) -> Report:
    """The page."""
    best, equal = judged[ATTENTION], sum(each.agrees for each in checks)
    summary = [
        ("numbers equal", f"{equal} of {len(checks)}"),
        ("loss with attention", f"{best.loss:.6f}"),
        ("proteins right", f"{best.right} of {int(best.counts.sum())}"),
        ("correlation", f"{correlation(best.counts.numpy()):.4f}"),
    ]
    rows = [
        (
            *(name, f"{each.loss:.6f}", PUBLISHED[name][0], f"{each.accuracy:.4f}", PUBLISHED[name][1]),
            *(f"{correlation(each.counts.numpy()):.4f}", f"{each.parameters:,}"),
        )
        for name, each in judged.items()
    ]
    heads = ("network", "loss", "published", "accuracy", "published", "correlation", "numbers stored")
    parts = [
        ReportTable("The four networks", "Correlation: Matthews' for several classes (Gorodkin 2004).", heads, rows),
        ReportTable(
            "Every number beside its like",
            "Port: the same weights in an independent port of the original code.",
            ("network", "number", "ours", "published", "equal"),
            [
                (each.network, each.measure, _shown(each), each.published, "yes" if each.agrees else "no")
                for each in checks
            ],
        ),
        ReportTable(
            "What attention takes for what",
            "Rows: where a protein works; columns: what was answered, by the first letters.",
            ("place", *(name[:4] for name in NAMES), "right"),
            [
                (name, *(str(count) for count in row), f"{100 * share:.1f} %")
                for name, row, share in zip(NAMES, best.counts.tolist(), best.recalls, strict=True)
            ],
        ),
    ]
    return Report(title="The protein networks of 2016", introduction=INTRODUCTION, summary=summary, parts=parts)


def _told(judged: dict[str, Judged], checks: Sequence[Check]) -> dict[str, object]:
    """report.json."""
    networks = {
        name: {
            **{"loss": each.loss, "accuracy": each.accuracy, "right": each.right, "recalls": each.recalls},
            **{
                "correlation": correlation(each.counts.numpy()),
                "parameters": each.parameters,
                "counts": each.counts.tolist(),
            },
        }
        for name, each in judged.items()
    }
    listed = [{**each._asdict(), "agrees": each.agrees} for each in checks]
    return {"name": NAME, "places": list(NAMES), "networks": networks, "checks": listed}


def _shown(check: Check) -> str:
    """Ours with the digits of what was published."""
    return f"{check.ours:.{check.digits}f}"


def _arrays(path: Path, names: Sequence[str] = ()) -> list[np.ndarray]:
    """The arrays of these names in a file, or arr_0, arr_1, …; `DataError` where that is not what it holds."""
    if not path.exists():
        raise DataError(
            f"{path} is not there: the weights are those of {ORIGIN}; give the folder that holds them as {NAME} with "
            "--data, or in PELLUCID_DATA"
        )
    try:
        with np.load(path) as stored:
            return [stored[name] for name in names or [f"arr_{at}" for at in range(len(stored.files))]]
    except (ValueError, KeyError, OSError) as error:
        raise DataError(f"{path} does not hold the arrays it should: {abbreviate_reason(error)}") from error
