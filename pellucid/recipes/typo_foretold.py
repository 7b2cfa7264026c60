"""Where a word has its wrong letter, by attention over what its neighbours foretell."""

from collections.abc import Iterator

from pellucid.data.synthetic import read_words
from pellucid.files import make_folder, write_json
from pellucid.recipes.following import followed
from pellucid.recipes.recipe import Request
from pellucid.recipes.typos.foretelling import Widths
from pellucid.recipes.typos.pointing import Course, Job, conduct
from pellucid.recipes.typos.report import Run, lines_of, numbers_of, parts_of, summary_of, told
from pellucid.viewer.reports import Report, write_report

NAME, TITLE = "typo-foretold", "The wrong letter, by what its neighbours foretell"
WIDTHS, COURSE = Widths(), Course()
INTRODUCTION = """The same words, typos and tables as in typo-faithful and typo-attention. Typos alone teach attention
little: each says of one letter that it is wrong, and that {samples:,} times over. So the network first reads the words
they are made of, {passes} times, and learns to foretell each letter from those before it and from those behind it. Then
it sees typos. The energy of a letter is that of additive attention over a second reading, of what both sides foretell,
plus what the two language models say themselves: how likely the letters before it are, how likely those behind it, how
likely what stands there, and how likely each letter that might stand there instead.

What is learned of a typo is both its position and the letter that was meant, out of all letters of all positions; the
weight on a position is the sum over its letters. No word that is tested is among those read."""


def run(request: Request) -> Iterator[str]:
    """Train one network a seed, and judge it as typo-faithful's are judged."""
    words = read_words(request.words, max_length=WIDTHS.longest)
    make_folder(request.out)
    course = COURSE._replace(samples=request.samples or COURSE.samples)
    runs = list[Run]()
    jobs = [Job(request.words, WIDTHS, course, seed) for seed in range(1, request.seeds + 1)]
    for done in followed(conduct, [(f"seed {job.seed}", job) for job in jobs], request):
        runs.append(done)
        yield from lines_of("foretold", told([done], words))
    every = told(runs, words)
    introduction = INTRODUCTION.format(**course._asdict())
    report = Report(title=TITLE, introduction=introduction, summary=summary_of(every), parts=parts_of(every))
    write_report(request.out / "report.html", report)
    numbers = {"name": NAME, "words": len(words.words), "widths": WIDTHS._asdict(), "course": course._asdict()}
    write_json(request.out / "report.json", {**numbers, **numbers_of(every)})
    yield f"report: {request.out / 'report.html'}"
