"""Schema of a report: the JSON that the page's report view reads, and TypeScript types of the same names.

Texts are unescaped; the page makes blanks and control characters visible.
"""

from collections.abc import Sequence

from pellucid.tasks.task_view import TaskView
from pellucid.viewer.schema import ConfusionCount, PageExample, PageStruct

REPORT_FORMAT = 1
"""Version of this schema; the page accepts no other."""

MarkedText = Sequence[tuple[str, bool]]
"""Pieces of a text, each with whether it differs from the text that it is compared with."""


class SummaryValue(PageStruct, frozen=True):
    """One number of the summary at the top of a report."""

    label: str
    """Name of the number."""
    value: str
    """The number with its unit."""
    note: str = ""
    """Interval or explanation below the value."""


class ReportText(PageStruct, frozen=True, tag="text"):
    """Section of a report: paragraphs of plain text, separated by empty lines."""

    title: str
    text: str


class ReportTable(PageStruct, frozen=True, tag="table"):
    """Section of a report, or table of a chart: a table of texts, whose first column names the rows."""

    title: str
    caption: str
    """Explanation; empty if there is none."""
    heads: Sequence[str]
    """Column headings."""
    rows: Sequence[Sequence[str]]
    """Cells of each row."""
    total: bool = False
    """Whether the last row is a total or a mean."""


class ReportFigure(PageStruct, frozen=True, tag="figure"):
    """Section of a report: a figure as an SVG document, as `pellucid.reporting.figures.to_svg` returns it."""

    title: str
    caption: str
    svg: str


class ChartPoint(PageStruct, frozen=True):
    """Point of a line in a chart, with its interval and its label."""

    x: float
    y: float
    label: str
    """Text shown when the pointer is over the point."""
    low: float | None = None
    """Lower end of the interval; None without an interval."""
    high: float | None = None
    """Upper end of the interval; None without an interval."""
    tick: str = ""
    """Label on the horizontal axis if x stands for a range."""


class ChartLine(PageStruct, frozen=True):
    """Named line of a chart."""

    name: str
    points: Sequence[ChartPoint]
    reference: bool = False
    """Whether this is a reference line, such as a diagonal: gray, without marks."""


class ReportChart(PageStruct, frozen=True):
    """Chart of lines over one horizontal axis."""

    title: str
    x_title: str
    """Title of the horizontal axis."""
    y_title: str
    """Title of the vertical axis."""
    lines: Sequence[ChartLine]
    low: float
    """Lower end of the vertical axis."""
    high: float
    """Upper end of the vertical axis."""
    numbers: ReportTable | None = None
    """Values of the first line as a table; None for no table."""


class ReportCharts(PageStruct, frozen=True, tag="charts"):
    """Section of a report: charts side by side."""

    title: str
    caption: str
    charts: Sequence[ReportChart]


class ReportExample(PageStruct, frozen=True):
    """One example of a report: a source with its outputs, and the output compared with its nearest reference."""

    outputs: Sequence[PageExample]
    """One for each run, in the order of `ReportExamples.runs`."""
    output: MarkedText
    """Output of the last run, compared with the nearest reference."""
    expected: MarkedText
    """Nearest reference, compared with the output; empty without references."""
    edits: int | None
    """Number of errors against the nearest reference; None without references."""
    errors: Sequence[tuple[str | None, str | None]] = ()
    """(expected, predicted) symbols of each error; no expected symbol is an insertion, no predicted one a deletion."""
    group: str = ""
    """Name of the group of the example; empty without groups."""


class ReportExamples(PageStruct, frozen=True, tag="examples"):
    """Section of a report: examples with their attention weights or tags, drawn at once, or listed and collapsed."""

    title: str
    caption: str
    examples: Sequence[ReportExample]
    listed: bool
    """Whether the examples are a list whose items are collapsed; else all are drawn at once."""
    runs: Sequence[str] = ()
    """Names of two runs of which only the first is correct; empty for the examples of one run."""


class ReportConfusions(PageStruct, frozen=True, tag="confusions"):
    """Section of a report: counts of symbol errors, and of correct predictions of the same symbols."""

    title: str
    caption: str
    errors: Sequence[ConfusionCount]
    """Most frequent first."""
    omitted: int
    """Number of confusions that are not in `errors`."""
    correct: dict[str, int]
    """Number of correct predictions of each symbol in `errors`."""


class ReportSettings(PageStruct, frozen=True, tag="settings"):
    """Section of a report: the configuration as TOML."""

    title: str
    toml: str


ReportPart = ReportText | ReportTable | ReportFigure | ReportCharts | ReportExamples | ReportConfusions | ReportSettings


class ReportDocument(PageStruct, frozen=True, kw_only=True, tag="report"):
    """Content of a report, as the page reads it. Adjacent parts with the same title share a section."""

    format: int
    """Version of this schema, `REPORT_FORMAT`."""
    version: str
    """Version of Pellucid."""
    title: str
    """Title of the report."""
    introduction: str
    """Paragraphs, separated by empty lines."""
    summary: Sequence[SummaryValue]
    """Main numbers."""
    parts: Sequence[ReportPart]
    """Sections in order."""
    tasks: dict[str, TaskView]
    """Display of the outputs of each task, by task name."""
