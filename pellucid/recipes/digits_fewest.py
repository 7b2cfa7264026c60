"""How few samples are enough, and which ingredient saves how many."""

from collections.abc import Iterator, Mapping
from typing import Any

from pellucid.files import make_folder
from pellucid.recipes.digits.networks import Design
from pellucid.recipes.digits.own import Task, samples_to, train_and_judge
from pellucid.recipes.digits.report import POSITIONS_ATTENTION, Group, Lesson, curves, lines_of, write_lesson
from pellucid.recipes.digits.study import Outcome, Plan, Study, conduct
from pellucid.recipes.following import followed
from pellucid.recipes.recipe import Request, recipe_config
from pellucid.viewer.report_schema import ReportTable
from pellucid.worker_pool import ProgressCallback

SAMPLES, DEVELOPMENT, TEST = 15_000, 500, 2_000
ENOUGH = 0.99
WITHOUT: Mapping[str, Mapping[str, Any]] = {
    "ours": {},
    "reads forward only": {"encoder": {"bidirectional": False, "hidden_size": 10}},
    "no symbol fed back": {"decoder": {"embedding": "none"}},
    "output reads the context only": {"decoder": {"output": "context"}},
    "starts from zero": {"decoder": {"init_hidden": "zero"}},
    "batches of 100": {"training": {"batch_size": 100}},
    "rate 0.005": {"training": {"learning_rate": 0.005}},
    "constant rate": {"training": {"lr_schedule": "constant"}},
}
"""What is taken away from our network, one at a time."""
NOTEBOOK, SHORT = Design("attention"), Plan(SAMPLES, every=750, validation=DEVELOPMENT)
WITH: Mapping[str, tuple[Design, Plan]] = {
    "2016": (NOTEBOOK, SHORT),
    "2016, padding masked": (NOTEBOOK._replace(attends_padding=False), SHORT),
    "2016, reads both ways": (NOTEBOOK._replace(directions="both", merge="sum"), SHORT),
    "2016, weights scaled by size": (NOTEBOOK._replace(initial="scaled"), SHORT),
    "2016, batches of 10": (NOTEBOOK, SHORT._replace(batch=10)),
    "2016, rate 0.02 falling": (NOTEBOOK, SHORT._replace(rate=0.02, decay="cosine")),
}
"""What is added to the notebook's network, one at a time."""
INTRODUCTION = """How many samples does it take to get 99 % of the symbols right? The notebook's network did not get
there in 150,000. Ours does in a fraction, with fewer parameters. To see what does it, each ingredient is taken away
from ours by itself, and each is added by itself to the network of 2016; all with the same number of samples."""


def run(request: Request) -> Iterator[str]:
    """Train ours, ours without each ingredient, and the notebook's with each."""
    make_folder(request.out)
    samples = request.samples or SAMPLES
    seeds = range(1, request.seeds + 1)
    own = [
        Task(name, request.out, seed, samples, recipe_config("digits-fewest", {"seed": seed, **without}))._replace(
            development=DEVELOPMENT, test=TEST
        )
        for name, without in WITHOUT.items()
        for seed in seeds
    ]
    theirs = [
        Study(name, design, plan._replace(samples=samples), seed)
        for name, (design, plan) in WITH.items()
        for seed in seeds
    ]
    jobs: list[Task | Study] = [*own, *theirs]
    outcomes = list(followed(_one, [(f"{job.name}, seed {job.seed}", job) for job in jobs], request))
    groups = [Group(name, [outcome for outcome in outcomes if outcome.name == name]) for name in (*WITHOUT, *WITH)]
    for group in groups:
        yield from lines_of(group)
    table = _table(groups)
    yield from ("  ".join(row) for row in table.rows)
    references = curves(request.data, "attention")
    shown = [groups[0], *groups[len(WITHOUT) : len(WITHOUT) + 1]]
    lesson = Lesson("digits-fewest", "How few samples are enough", INTRODUCTION, shown, references, POSITIONS_ATTENTION)
    numbers = {
        "samples_to_99": {f"{outcome.name}, seed {outcome.seed}": samples_to(outcome, ENOUGH) for outcome in outcomes},
        "final_symbol_accuracy": {f"{outcome.name}, seed {outcome.seed}": outcome.accuracy for outcome in outcomes},
    }
    yield write_lesson(request, lesson._replace(parts=[table], numbers=numbers))


def _one(job: Task | Study, tell: ProgressCallback) -> Outcome:
    """One training of either kind."""
    return train_and_judge(job, tell).outcome if isinstance(job, Task) else conduct(job, tell)


def _table(groups: list[Group]) -> ReportTable:
    """Each variant's samples to 99 % and final accuracy, seed by seed."""
    rows = []
    for group in groups:
        needed = [samples_to(outcome, ENOUGH) for outcome in group.outcomes]
        rows.append(
            (
                group.name,
                " ".join("–" if samples is None else f"{samples:,}" for samples in needed),
                " ".join(f"{100 * outcome.accuracy:.2f}" for outcome in group.outcomes),
                " ".join(f"{100 * outcome.final.exact_match:.1f}" for outcome in group.outcomes),
                f"{group.outcomes[0].parameters:,}",
            )
        )
    heads = ("network", "samples to 99 % of the symbols", "symbols right, %", "sequences right, %", "parameters")
    return ReportTable("Each ingredient by itself", "One number a seed; – never reached.", heads, rows)
