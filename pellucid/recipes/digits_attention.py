"""Spelled digits to digits with attention: data, training, a few translations, report."""

import shutil
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from pellucid.data.synthetic import spell_digits
from pellucid.errors import DataError
from pellucid.files import write_json
from pellucid.recipes.digits.own import Task, train_and_judge
from pellucid.recipes.digits.report import (
    POSITIONS_ATTENTION,
    Curve,
    Group,
    Lesson,
    curves,
    lines_of,
    parts_of,
    report_of,
)
from pellucid.recipes.following import teller
from pellucid.recipes.recipe import Request, recipe_config
from pellucid.reporting.terminal import render_trace, shade_legend
from pellucid.tasks.task import ATTENTION_CAPTION
from pellucid.training.run_folder import load
from pellucid.viewer.reports import run_report, write_report

DIGITS, SAMPLES, DEVELOPMENT, TEST = 20, 60_000, 1_000, 5_000
NUMBERS = ("31415926535897932384", "27182818284590452353", "11111111112222222222")
"""Lines to show: the first digits of π and of e, and a row of equal ones, where it is easy to lose one's place."""
NAME, TITLE = "digits-attention", "Spelled digits to digits, with attention"
INTRODUCTION = """A bidirectional GRU encoder of 5 + 5 units reads twenty digits spelled out, about 99 characters; a GRU
decoder of 10 units with additive attention writes them as digits. Every training pair was seen once; the pairs it is
judged on are fresh.

The 2016 notebook this repeats reached 89.2 % of the symbols at best, with twice the samples and more parameters;
without attention its encoder-decoder stayed at a quarter."""


def run(request: Request) -> Iterator[str]:
    """Train one model a seed, judge each on fresh pairs, show a few lines, and write report.html and report.json."""
    results = [
        train_and_judge(
            Task("", request.out, seed, request.samples or SAMPLES, recipe_config(NAME, {"seed": seed}))._replace(
                digits=(DIGITS, DIGITS), development=DEVELOPMENT, test=TEST
            ),
            teller(request, f"attention, seed {seed} ({seed} of {request.seeds})"),
        )
        for seed in range(1, request.seeds + 1)
    ]
    yield from _lines(results[0].folder)
    group = Group("attention", [result.outcome for result in results])
    lesson = Lesson(NAME, TITLE, INTRODUCTION, [group], _references(request.data), POSITIONS_ATTENTION)
    report = run_report(results[0].folder, results[0].judgement, TITLE, INTRODUCTION)
    write_report(request.out / "report.html", replace(report, parts=parts_of(lesson)))
    write_json(request.out / "report.json", report_of(lesson))
    yield from lines_of(group)
    yield f"report: {request.out / 'report.html'}"


def _references(data: Path) -> list[Curve]:
    """The authors' curves, where they are at hand: the demo runs without them."""
    try:
        return curves(data, "attention")
    except DataError:
        return []


def _lines(folder: Path) -> Iterator[str]:
    """A few translations with their attention, for the terminal."""
    color = sys.stdout.isatty()
    width = shutil.get_terminal_size((120, 24)).columns
    for trace in load(folder).predict([spell_digits(number) for number in NUMBERS]):
        yield f"{render_trace(trace, width=width, color=color)}\n"
    yield f"{shade_legend(color=color)}\n{ATTENTION_CAPTION}\n"
