"""Schema of a report: the JSON that the page's report view reads, and TypeScript types of the same names.

Texts are as they were given; the page makes blanks and control characters visible.
"""

from collections.abc import Sequence

from pellucid.tasks.task_view import TaskView
from pellucid.viewer.schema import ConfusionCount, PageExample, PageStruct

REPORT_FORMAT = 1
"""Version of this schema; the page refuses any other."""

MarkedText = Sequence[tuple[str, bool]]
"""Pieces of a text, each with whether it differs from the text that it is compared with."""


class SummaryValue(PageStruct, frozen=True):
    """One number of a report's header."""

    label: str
    value: str
    note: str = ""
    """Interval or explanation, set smaller below the value."""


class ReportText(PageStruct, frozen=True, tag="text"):
    """Paragraphs of plain text, with an empty line between."""

    title: str
    text: str


class ReportTable(PageStruct, frozen=True, tag="table"):
    """Table of texts; its first column names the rows."""

    title: str
    caption: str
    heads: Sequence[str]
    rows: Sequence[Sequence[str]]
    total: bool = False
    """Whether the last row sums up the others."""


class ReportFigure(PageStruct, frozen=True, tag="figure"):
    """Figure as an SVG document, as `pellucid.reporting.figures.svg` writes it."""

    title: str
    caption: str
    svg: str


class ChartPoint(PageStruct, frozen=True):
    """One value of a line, with its interval and its label on hover."""

    x: float
    y: float
    label: str
    low: float | None = None
    high: float | None = None
    tick: str = ""
    """Label on the horizontal axis where x is no number of its own, such as a range."""


class ChartLine(PageStruct, frozen=True):
    """Named line of a chart."""

    name: str
    points: Sequence[ChartPoint]
    reference: bool = False
    """Whether the line is there to compare others with, such as a diagonal: gray, without marks."""


class ReportChart(PageStruct, frozen=True):
    """Lines over one horizontal axis."""

    title: str
    x_title: str
    y_title: str
    lines: Sequence[ChartLine]
    low: float
    """Lower end of the vertical axis."""
    high: float
    numbers: ReportTable | None = None
    """Values of the first line as a table."""


class ReportCharts(PageStruct, frozen=True, tag="charts"):
    """Charts side by side."""

    title: str
    caption: str
    charts: Sequence[ReportChart]


class ReportExample(PageStruct, frozen=True):
    """One source with its outputs."""

    outputs: Sequence[PageExample]
    """One for each run, in the order of `ReportExamples.runs`."""
    output: MarkedText
    """Output of the last run, compared with the nearest reference."""
    expected: MarkedText
    """Nearest reference, compared with the output; empty where no reference is known."""
    edits: int | None
    """Symbols to change to reach the nearest reference."""
    errors: Sequence[tuple[str | None, str | None]] = ()
    """(expected, predicted) symbols of each error; None stands for no symbol."""
    group: str = ""


class ReportExamples(PageStruct, frozen=True, tag="examples"):
    """Examples with their attention or their tags, each drawn at once, or listed to be unfolded."""

    title: str
    caption: str
    examples: Sequence[ReportExample]
    listed: bool
    runs: Sequence[str] = ()
    """Names of two runs of which only the first is right; empty for the examples of one run."""


class ReportConfusions(PageStruct, frozen=True, tag="confusions"):
    """Counts of symbol errors, and of the correct symbols among those that errors were made with."""

    title: str
    caption: str
    errors: Sequence[ConfusionCount]
    """Most frequent first."""
    omitted: int
    """Kinds of error that are not in `errors`."""
    correct: dict[str, int]
    """How often each of these symbols was predicted where it was expected."""


class ReportSettings(PageStruct, frozen=True, tag="settings"):
    """Configuration as TOML."""

    title: str
    toml: str


ReportPart = ReportText | ReportTable | ReportFigure | ReportCharts | ReportExamples | ReportConfusions | ReportSettings


class ReportDocument(PageStruct, frozen=True, kw_only=True, tag="report"):
    """Everything that a report shows. Neighboring parts of one title share a section."""

    format: int
    version: str
    """Version of Pellucid."""
    title: str
    introduction: str
    """Paragraphs with an empty line between."""
    summary: Sequence[SummaryValue]
    parts: Sequence[ReportPart]
    tasks: dict[str, TaskView]
    """How outputs of the tasks of all traces are shown, by the names of the tasks."""
