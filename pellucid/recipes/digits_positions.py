"""The notebook's question "why?" under its plots of accuracy by position, answered by measurement."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from pellucid.data.synthetic import NUM_OUTPUTS, DigitSamples
from pellucid.files import make_folder
from pellucid.recipes.digits.networks import Design, DigitsNetwork
from pellucid.recipes.digits.report import (
    POSITIONS_REPEAT,
    Group,
    Lesson,
    every_seed,
    lines_of,
    named,
    position_figure,
    write_lesson,
)
from pellucid.recipes.digits.study import Outcome, Plan, Study, conduct_and_keep, inputs_of, unheard
from pellucid.recipes.following import followed
from pellucid.recipes.recipe import Request
from pellucid.reporting.figures import to_svg
from pellucid.viewer.report_schema import ReportFigure, ReportPart, ReportTable, ReportText
from pellucid.worker_pool import ProgressCallback

PROBED = 20_000
"""Samples that a probe is fitted on; it is judged on as many others."""
STUDIES = (
    Study("code", Design("repeat"), Plan(300_000), 1),
    Study("code, input read backwards", Design("repeat"), Plan(300_000, backwards=True), 1),
    Study("attention", Design("attention"), Plan(150_000), 1),
    Study("attention, padding masked", Design("attention", attends_padding=False), Plan(150_000), 1),
)
INTRODUCTION = """Under its plots of accuracy by position the notebook asks why. Four trainings answer. The first
network twice, once on inputs that are read backwards: if it is the distance from the letters to the code that
decides, the shape must turn round with them. The attention network twice, once blind to the padding: the notebook's
looks at it, and what stands there is the encoder's last state over and over, which is also what the last words leave
behind. If that is what blurs the late positions, the slope and the dip before the end must go with it.

A probe asks what the code holds, whatever the decoder makes of it: a softmax regression from the ten numbers of the
code to the digit at each place."""


class Found(NamedTuple):
    """A study, its outcome, what a probe reads from the code at each position, and how far the words' starts spread."""

    study: Study
    outcome: Outcome
    probed: list[float]
    spread: list[float]


def run(request: Request) -> Iterator[str]:
    """Train the four, probe the codes, and compare the shapes."""
    make_folder(request.out)
    found = list(followed(examine, named(every_seed(STUDIES, request)), request))
    groups = [
        Group(study.name, [each.outcome for each in found if each.outcome.name == study.name]) for study in STUDIES
    ]
    for group in groups:
        yield from lines_of(group)
    parts = [*_probes(found), *_lengths(found)]
    for part in parts:
        if isinstance(part, ReportText):
            yield part.text
    numbers = {"probes": {_tag(each): each.probed for each in found if each.probed}}
    numbers["spread_of_starts"] = {_tag(each): each.spread for each in found}
    lesson = Lesson("digits-positions", "Why accuracy goes by position", INTRODUCTION, groups, (), POSITIONS_REPEAT)
    yield write_lesson(request, lesson._replace(parts=parts, numbers=numbers))


def examine(study: Study, tell: ProgressCallback = unheard) -> Found:
    """Train, then probe."""
    network, outcome = conduct_and_keep(study, tell)
    generator = np.random.default_rng([study.seed, 2])
    fitted, judged = (study.plan.samples_from(PROBED, generator) for _ in range(2))
    probed = probe(network, fitted, judged) if study.design.decoder == "repeat" else []
    return Found(study, outcome, probed, judged.starts.std(axis=0).tolist())


def probe(network: DigitsNetwork, fitted: DigitSamples, judged: DigitSamples) -> list[float]:
    """The accuracy at each position of a softmax regression from the code, fitted on the one half."""
    codes, answers = codes_of(network, fitted)
    mean, deviation = codes.mean(dim=0), codes.std(dim=0) + 1e-6
    regression = nn.Linear(codes.shape[1], answers.shape[1] * NUM_OUTPUTS)
    optimizer = torch.optim.LBFGS(regression.parameters(), max_iter=100, line_search_fn="strong_wolfe")

    def cost() -> Tensor:
        """The cross-entropy at all positions together."""
        optimizer.zero_grad()
        logits = regression((codes - mean) / deviation).view(-1, NUM_OUTPUTS)
        value = nn.functional.cross_entropy(logits, answers.flatten())
        value.backward()  # type: ignore[no-untyped-call]
        return value

    optimizer.step(cost)  # type: ignore[no-untyped-call]
    codes, answers = codes_of(network, judged)
    with torch.no_grad():
        read = regression((codes - mean) / deviation).view(*answers.shape, NUM_OUTPUTS).argmax(dim=-1)
    right: list[float] = (read == answers).float().mean(dim=0).tolist()
    return right


def codes_of(network: DigitsNetwork, samples: DigitSamples) -> tuple[Float[Tensor, "N D"], Int[Tensor, "N T"]]:
    """The encoder's last states, and the symbols to be read from them."""
    with torch.no_grad():
        codes = network.encoder(*inputs_of(samples)).final.hidden[:, -1].clone()
    return codes, torch.from_numpy(samples.targets).long()


def _probes(found: Sequence[Found]) -> Iterator[ReportPart]:
    """What the decoder wrote beside what the code held."""
    probed = [each for each in found if each.probed and each.outcome.seed == 1]
    title = "What the code holds"
    for each in probed:
        reading = each.outcome._replace(final=each.outcome.final._replace(per_position=each.probed))
        groups = [Group(f"{each.outcome.name}: written", [each.outcome]), Group("read by the probe", [reading])]
        yield ReportFigure(title, "Seed 1.", to_svg(position_figure(groups)))
    lines = []
    for each in probed:
        written, held = np.array(each.outcome.final.per_position[:-1]), np.array(each.probed[:-1])
        agree = float(np.corrcoef(written, held)[0, 1])
        lines.append(
            f"{each.outcome.name}: mean accuracy of the digits {written.mean():.3f} written, {held.mean():.3f} "
            f"read by the probe; over positions the two go together with a correlation of {agree:.2f}. First five "
            f"places {written[:5].mean():.3f}, last five {written[-5:].mean():.3f}."
        )
    yield ReportText(title, "\n\n".join(lines))


def _lengths(found: Sequence[Found]) -> Iterator[ReportPart]:
    """Accuracy of attention, with padding and without, beside the spread of the words' starts."""
    title = "What padding does to attention"
    looked = [each for each in found if each.study.design.decoder == "attention" and each.outcome.seed == 1]
    rows = [
        [str(place + 1), *(f"{value:.3f}" for each in looked for value in _place(each, place))]
        for place in range(len(looked[0].spread) - 1)
    ]
    heads = ["position"]
    for each in looked:
        heads += [f"{each.outcome.name}: right", "letters of spread"]
    yield ReportTable(title, "Spread: the standard deviation of the place where the word begins. Seed 1.", heads, rows)
    lines = []
    for each in looked:
        right = np.array(each.outcome.final.per_position[:-1])
        words = f"{each.outcome.name}: first ten digits {right[:10].mean():.3f}, last ten {right[10:].mean():.3f}"
        lines.append(f"{words}, lowest {right.min():.3f} at {right.argmin() + 1}.")
    yield ReportText(title, "\n\n".join(lines))


def _place(found: Found, place: int) -> tuple[float, float]:
    """Accuracy and spread at a position."""
    return found.outcome.final.per_position[place], found.spread[place]


def _tag(found: Found) -> str:
    """A run's name and seed."""
    return f"{found.outcome.name}, seed {found.outcome.seed}"
