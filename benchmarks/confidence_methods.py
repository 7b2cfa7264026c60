"""Methods for the confidence of outputs, fitted to validation outputs and tested on others.

    python benchmarks/confidence_methods.py RUN VALID TEST [RUN VALID TEST ...]

VALID has the validation pairs of the training of a run folder RUN, TEST the test pairs. One line of JSON is printed per
method, with means over the runs: expected calibration error and AURC in percent, Brier score, and log loss.
docs/guides/confidence.md explains the methods.
"""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np

import pellucid
from pellucid.data.examples import read_examples
from pellucid.decoding.confidence import MAX_MARGIN, output_margins
from pellucid.decoding.predictor import Predictor
from pellucid.evaluation.assessment import score_traces
from pellucid.evaluation.calibration import measure_calibration
from pellucid.evaluation.confidence_fit import fit_platt_scaling

PLATT_SCALING = {"log p": ["p"], "the difference in the beam": ["gap"], "the margin": ["margin"]}
REGRESSIONS = {"log p and length": ["p", "length"], "log p and the difference": ["p", "gap"]}
REGRESSIONS["the margin and log p"] = ["margin", "p"]
TEMPERATURES = np.geomspace(0.02, 50, 800)


def decode(model: Predictor, path: Path) -> dict[str, np.ndarray]:
    """Return features of the best output of each source of a file, and whether it is correct."""
    examples = read_examples(path, model.config.data).examples
    beams = model.nbest_examples(examples, 2)
    best = [beam[0] for beam in beams]
    scored = score_traces(best, [(example.target,) for example in examples], model.tokenizers)
    gaps, margins = (output_margins(beams, ranked) for ranked in (True, model.pair_ngram_weight > 0))
    return {
        "correct": np.array([row.exact for row in scored]),
        "p": np.array([trace.score for trace in best]),
        "length": np.array([float(max(1, len(trace.target))) for trace in best]),
        "gap": np.maximum(gaps, -MAX_MARGIN),
        "margin": np.maximum(margins, -MAX_MARGIN),
    }


def fit_temperature(log_p: np.ndarray, correct: np.ndarray) -> float:
    """Return the temperature with the least log loss."""
    losses = [log_loss(np.exp(log_p / temperature), correct) for temperature in TEMPERATURES]
    return float(TEMPERATURES[int(np.argmin(losses))])


def fit_logistic_regression(features: np.ndarray, correct: np.ndarray) -> np.ndarray:
    """Return the weights of logistic regression with Platt's targets and a weak prior, the intercept first."""
    design = np.column_stack([np.ones(len(features)), features])
    targets = np.where(correct, (correct.sum() + 1) / (correct.sum() + 2), 1 / ((~correct).sum() + 2))
    weights, prior = np.zeros(design.shape[1]), np.diag([0.0] + [1.0] * features.shape[1])
    for _ in range(200):  # Newton's method with limited steps
        p = 1 / (1 + np.exp(-design @ weights))
        hessian = (design * np.maximum(p * (1 - p), 1e-6)[:, None]).T @ design + prior
        step = np.linalg.solve(hessian, design.T @ (p - targets) + prior @ weights)
        weights -= step / max(1.0, float(np.abs(step).max()))
    return weights


def fit_isotonic(values: np.ndarray, correct: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return sorted values and their isotonic regression, max over a ≤ i of min over b ≥ i of the mean of a … b."""
    order = np.lexsort((~correct, values))
    sums = np.concatenate([[0.0], np.cumsum(correct[order])])
    first, last = np.ogrid[: len(order), : len(order)]
    means = np.where(last >= first, (sums[1:] - sums[:-1, None]) / np.maximum(last - first + 1, 1), np.inf)
    lowest = np.minimum.accumulate(means[:, ::-1], axis=1)[:, ::-1]
    return values[order], np.where(last >= first, lowest, -np.inf).max(axis=0)


def log_loss(p: np.ndarray, correct: np.ndarray) -> float:
    """Return the mean negative log-probability of the outcomes."""
    return float(-np.log(np.clip(np.where(correct, p, 1 - p), 1e-6, 1)).mean())


def all_confidences(known: dict[str, np.ndarray], new: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return the confidences of new outputs by each method, fitted to known outputs."""
    correct, lowest = known["correct"], 1 / (len(known["correct"]) + 2)
    methods = {"probability": np.exp(new["p"])}
    for name, divisor in (("temperature", "one"), ("temperature and length", "length")):
        scaled, other = (rows["p"] / rows.get(divisor, 1.0) for rows in (known, new))
        methods[name] = np.exp(other / fit_temperature(scaled, correct))
    for name, (feature,) in PLATT_SCALING.items():
        intercept, slope = fit_platt_scaling(known[feature], correct)
        methods[f"Platt scaling of {name}"] = 1 / (1 + np.exp(-intercept - slope * new[feature]))
    for name, features in REGRESSIONS.items():
        old, other = (np.column_stack([rows[feature] for feature in features]) for rows in (known, new))
        mean, scale = old.mean(axis=0), np.maximum(old.std(axis=0), 1e-6)
        weights = fit_logistic_regression((old - mean) / scale, correct)
        methods[f"regression on {name}"] = 1 / (1 + np.exp(-weights[0] - (other - mean) / scale @ weights[1:]))
    for name, feature in (("log p", "p"), ("the margin", "margin")):
        methods[f"isotonic regression on {name}"] = np.interp(new[feature], *fit_isotonic(known[feature], correct))
    return {name: np.clip(p, lowest, 1 - lowest) if name != "probability" else p for name, p in methods.items()}


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the means over the runs.

    Args:
        arguments: Command-line arguments; those of the process by default.
    """
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", nargs="+", metavar="RUN VALID TEST", help="run folder, validation and test file")
    paths = parser.parse_args(arguments).paths
    if len(paths) % 3:
        parser.error("each run needs a validation file and a test file: RUN VALID TEST ...")
    results: dict[str, list[list[float]]] = {}
    for run, valid, test in zip(paths[::3], paths[1::3], paths[2::3], strict=True):
        model = pellucid.load(run)
        known, new = (decode(model, Path(path)) for path in (valid, test))
        for name, p in all_confidences(known, new).items():
            measured = measure_calibration(np.log(np.maximum(p, 1e-300)).tolist(), new["correct"].tolist())
            percentages = 100 * measured.expected_calibration_error, 100 * measured.risk_coverage_area
            results.setdefault(name, []).append([*percentages, measured.brier, log_loss(p, new["correct"])])
    for name, rows in results.items():
        names = ("expected_calibration_error", "risk_coverage_area", "brier", "log_loss")
        print(json.dumps({"method": name, **dict(zip(names, np.mean(rows, axis=0).round(4).tolist(), strict=True))}))


if __name__ == "__main__":
    main()
