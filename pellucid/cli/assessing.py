"""From the arguments of evaluate to assessments: which runs answer which pairs, in which groups."""

import re
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from glob import escape, glob
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from pellucid.cli.messages import say
from pellucid.cli.search_flags import SearchFlags, lexicon_of, with_settings
from pellucid.config.settings import DataConfig, Device, Format
from pellucid.data.examples import (
    STANDARD_INPUT,
    BadLine,
    Example,
    Reading,
    columns_note,
    is_undecided,
    read_examples,
    read_grouped,
)
from pellucid.data.headers import header_note, of_another_file
from pellucid.data.readers import column_number, has_known_name
from pellucid.decoding.trace import Trace
from pellucid.errors import DataError, InputError, quote
from pellucid.evaluation.assessment import Answered, Assessment, assess, join, merge_references
from pellucid.reporting.tables import short_names
from pellucid.tasks.task_settings import settings_of

if TYPE_CHECKING:
    from pellucid.decoding.constraints import Lexicon
    from pellucid.decoding.predictor import Predictor
    from pellucid.decoding.sampling import Drawing

HOLE = "{}"
"""Stands for a group's name in the path of a file or run."""


class Lexicons(dict["DataConfig", "Lexicon | None"]):
    """The lexicon as each way of reading texts reads it, once for all runs that share it."""


class How(NamedTuple):
    """How pairs are read and answered."""

    target: Path | None
    multi_reference: bool
    group: str
    texts: bool
    input_format: Format
    search: SearchFlags
    drawing: "Drawing | None"
    """How outputs are drawn, where they are not searched for."""
    device: Device


class Part(NamedTuple):
    """The runs and the pairs of one group, or all there are."""

    group: str
    runs: tuple[Path, ...]
    file: Path
    target: Path | None


class Assessed(NamedTuple):
    """What each run is worth, and what was read and how long decoding took."""

    runs: list[Assessment]
    counts: list[dict[str, int]]
    seconds: list[float]
    bad: list[BadLine]
    names: Sequence[str] = ()
    """The runs' whole names, of which the assessments have short ones."""


def assessed(runs: Sequence[Path], file: Path, how: How) -> Assessed:
    """Decode and score the pairs of `file` with every run."""
    with _stored(file) as stored:
        parts, lexicons = list(_parts(runs, stored, how.target)), Lexicons()
        results = [_part(part, how, lexicons) for part in parts]
    names = _names(runs)
    joined = [join([result.runs[at] for result in results]) for at in range(len(runs))]
    counts = [_summed([result.counts[at] for result in results]) for at in range(len(runs))]
    seconds = [sum(result.seconds[at] for result in results) for at in range(len(runs))]
    named = [replace(assessment, name=name) for assessment, name in zip(joined, short_names(names), strict=True)]
    return Assessed(named, counts, seconds, [line for result in results for line in result.bad], names)


@contextmanager
def _stored(file: Path) -> Iterator[Path]:
    """The file itself; for "-" all of standard input in a file, whose messages name it so."""
    if str(file) != "-":
        yield file
        return
    if sys.stdin is None:
        raise DataError("standard input is closed: give a file of pairs")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / STANDARD_INPUT
        with path.open("wb") as whole:
            shutil.copyfileobj(sys.stdin.buffer, whole)
        try:
            yield path
        except InputError as error:
            raise type(error)(str(error).replace(f"{folder}/", "")) from error


def _parts(runs: Sequence[Path], file: Path, target: Path | None) -> Iterator[Part]:
    """One part; or, where the file's path has a hole, one for each name that fills it there and in every run's path."""
    if HOLE not in str(file):
        holed = next((path for path in [*runs, *filter(None, [target])] if HOLE in str(path)), None)
        if holed is not None:
            raise InputError(f"{holed} has a {HOLE} for a name, but {file}, whose name fills it, has none")
        yield Part("", tuple(runs), file, target)
        return
    names = _fillings(str(file))
    if not names:
        raise DataError(f"no file is named like {file} ({HOLE} stands for a name)")
    missing = {name: path for name in names for path in runs if not _filled(path, name).is_dir()}
    if len(missing) == len(names):
        raise DataError(f"{len(names)} files are named like {file}, but no run has a folder {runs[0]} for any of them")
    if missing:
        left = ", ".join(missing)
        say(f"note: no run for {len(missing)} of {len(names)} files, left out: {left}")
    for name in names:
        if name not in missing:
            paths = tuple(_filled(path, name) for path in runs)
            yield Part(name, paths, _filled(file, name), _filled(target, name) if target else None)


def _fillings(pattern: str) -> list[str]:
    """The names for which a file stands at the pattern with its holes filled, sorted."""
    first, *rest = (re.escape(piece) for piece in pattern.split(HOLE))
    matching = re.compile(first + "([^/]+)" + r"\1".join(rest))
    found = glob("*".join(escape(piece) for piece in pattern.split(HOLE)))
    return sorted(match[1] for match in map(matching.fullmatch, found) if match)


def _filled(path: Path, name: str) -> Path:
    """A path with a name in its holes."""
    return Path(str(path).replace(HOLE, name))


def _part(part: Part, how: How, lexicons: Lexicons) -> Assessed:
    """Every run on the pairs of one part; the first run's settings say how the file is read and cut into symbols."""
    from pellucid.model.device import use_threads
    from pellucid.tasks.registry import task_of

    transducers = [_loaded(path, how, lexicons) for path in part.runs]
    _check_tasks(part.runs, transducers)
    data = _data_config(transducers[0].config.data, part.file, how)
    reading, groups = _read(part, data, how)
    answered = _asked(reading, [" ".join(filter(None, [part.group, each])) for each in groups], how)
    found = Assessed([], [], [], reading.bad)
    for path, transducer in zip(part.runs, transducers, strict=True):
        use_threads(transducer.config.threads)
        began = time.perf_counter()
        outputs = _outputs(transducer, answered.examples, how)
        found.seconds.append(time.perf_counter() - began)
        own = answered._replace(outputs=outputs)
        cut, metrics = transducers[0].segmenters, task_of(transducer.config).metrics
        found.runs.append(assess(path.name, own, transducer.segmenters, cut, metrics, how.texts))
        found.counts.append(_counts(reading, own))
    return found


def _loaded(path: Path, how: How, lexicons: Lexicons) -> "Predictor":
    """A run's model, or an ensemble's, searching as is asked for."""
    from pellucid.decoding.options import Options
    from pellucid.training.run_folder import load

    transducer = with_settings(load(path, how.device), how.search)
    if transducer.config.data not in lexicons:
        lexicons[transducer.config.data] = lexicon_of(transducer, how.search)
    _check_asked(transducer, how)
    return transducer.with_options(Options(lexicon=lexicons[transducer.config.data]))


def _check_tasks(paths: Sequence[Path], transducers: "Sequence[Predictor]") -> None:
    """`InputError` where runs have different tasks: their answers and their scores do not compare."""
    first, *others = zip(paths, (each.config.task for each in transducers), strict=True)
    for path, task in others:
        if task != first[1]:
            raise InputError(
                f"runs of one task can be compared: that of {first[0]} is {quote(first[1])}, of {path} {quote(task)}"
            )


def _check_asked(transducer: "Predictor", how: How) -> None:
    """`InputError` for what the answers of a task are not scored by."""
    task = transducer.config.task
    if how.texts and not transducer.autoregressive:
        raise InputError(f"--texts scores running texts, but the model's task is {quote(task)}")
    if how.multi_reference and settings_of(task).per_position:
        several = "outputs that may be right in several ways"
        raise InputError(f"--multi-reference is for {several}, but the task is {quote(task)}")


def _outputs(transducer: "Predictor", examples: Sequence[Example], how: How) -> list[list[Trace]]:
    """The outputs of each example: the best, so many of them, or samples."""
    if how.drawing is not None:
        return transducer.samples(examples, how.drawing)
    if how.search.nbest is None:
        return [[trace] for trace in transducer.trace(examples)]
    return transducer.hypotheses(examples, how.search.nbest)


def _data_config(trained: DataConfig, file: Path, how: How) -> DataConfig:
    """How the file is read: as was asked, else as its name says, else as the training file was."""
    format = how.input_format
    if format == "auto" and not has_known_name(file):
        format = trained.format
    own = of_another_file(trained, how.search.header)
    return msgspec.structs.replace(own, on_bad_line=how.search.on_bad_line, format=format)


def _read(part: Part, data: DataConfig, how: How) -> tuple[Reading, list[str]]:
    """The pairs of a part, with what stands in the column of groups."""
    if not how.group:
        reading = read_examples(part.file, data, part.target)
        note = header_note(reading.examples) if is_undecided(part.file, data, part.target) else ""
        shown = STANDARD_INPUT if part.file.name == STANDARD_INPUT else part.file
        if note:
            say(f"note: {shown}: {note}")
        if ignored := columns_note(part.file, data, part.target):
            say(f"note: {shown}: {ignored}")
        return reading, [""] * len(reading.examples)
    if part.target is not None:
        raise InputError("--group names a column of FILE, but with --target FILE has whole lines only")
    try:
        return read_grouped(part.file, data, how.group)
    except InputError as error:
        if f"expected {column_number(how.group)} columns" in str(error):
            raise DataError(f"--group {how.group}: there is no such column ({str(error).splitlines()[0]})") from error
        raise type(error)(*(line.replace("data.group_column", "--group") for line in error.args)) from error


def _asked(reading: Reading, names: Sequence[str], how: How) -> Answered:
    """The examples of a part with their references and groups, group by group, not yet answered."""
    groups: dict[str, list[Example]] = {}
    for example, group in zip(reading.examples, names, strict=True):
        groups.setdefault(group, []).append(example)
    if not how.multi_reference:
        _tell_of_several(reading.examples)
    asked = Answered([], [], [], [])
    for group, examples in groups.items():
        merged = merge_references(examples) if how.multi_reference else [(each, (each.target,)) for each in examples]
        asked.examples.extend(example for example, _ in merged)
        asked.references.extend(references for _, references in merged)
        asked.groups.extend([group] * len(merged))
    return asked


def _tell_of_several(examples: Sequence[Example]) -> None:
    """A source that stands on several lines with several targets is told of: each line is an example of its own."""
    distinct = {(each.source, each.features, each.target) for each in examples}
    several = len(distinct) - len({(source, features) for source, features, _ in distinct})
    if several:
        say(
            f"note: {several:,} further targets belong to sources that have one already; each line is scored against "
            "its own target (--multi-reference accepts any of them)"
        )


def _counts(reading: Reading, answered: Answered) -> dict[str, int]:
    """What was read, and what a run met in it."""
    best = [outputs[0] for outputs in answered.outputs]
    return {
        "lines": len(reading.examples),
        "bad_lines": len(reading.bad),
        "blank_lines": reading.blank,
        "unknown_symbols": sum(len(trace.unknown) for trace in best),
        "cut_outputs": sum(not trace.finished for trace in best),
    }


def _summed(counts: Sequence[dict[str, int]]) -> dict[str, int]:
    """Counts of several parts together."""
    return {name: sum(each[name] for each in counts) for name in counts[0]}


def _names(runs: Sequence[Path]) -> list[str]:
    """A short name for each run: that of its folder less the hole, or the whole path where two have one name."""
    short = [path.name.replace(HOLE, "").strip("-_. ") or str(path) for path in runs]
    return short if len(set(short)) == len(short) else [str(path) for path in runs]
