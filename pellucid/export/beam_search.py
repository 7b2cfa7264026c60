"""Beam search over an exported network, in NumPy and ONNX Runtime alone: python beam_search.py DIR FILE

DIR holds encoder.onnx, decoder_step.onnx and pellucid.json. FILE has one source per line; with features, the features
follow after a tab. The outputs are those of `pellucid predict RUN FILE --no-pair-ngram`. This file may be copied and
changed freely.

S source positions, k hypotheses, W target symbols (with copying, one more per source position), T steps.
"""

import argparse
import json
import math
import os
import sys
import unicodedata
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnxruntime

BOS, EOS, UNK = 1, 2, 3
FORMAT, VERSION = "pellucid-onnx", 1
JOINED_BY = {"characters": "", "ipa": "", "subwords": "", "words": " ", "whole": "\t", "position": "\t"}
"""Text between two symbols, by their kind; any other kind is a separator."""
TIE_BARS = "\u035c\u0361"
"""Combining marks that join two letters of the International Phonetic Alphabet (IPA) to one phone."""
BOUNDARY_MARKS = "ˈˌ\ua71b\ua71c\ua71d\ua71e"
"""Modifier letters of Unicode that precede a syllable, and belong to no letter."""
MODIFIER_RANGES = (("ʰ", "\u02ff"), ("⁰", "ⁿ"), ("\ua700", "\ua71f"), ("꞉", "꞉"), ("²", "³"), ("¹", "¹"))
"""First and last characters of ranges that modify a letter, beside the modifier letters of Unicode."""
Values = dict[str, np.ndarray]


class OnnxOutput(NamedTuple):
    """One output of a source."""

    text: str
    symbols: list[str]
    log_probability: float
    """Natural logarithm of the probability, that of the end symbol included."""
    attention: np.ndarray
    """Attention weights, shape (T, S)."""


class BeamHypothesis(NamedTuple):
    """A beginning of an output, or a whole one."""

    ids: tuple[int, ...]
    """Ids of its symbols; the last one of a finished output is EOS."""
    total: np.float32
    """Log-probability in single precision, by which hypotheses are pruned."""
    steps: tuple[tuple[float, np.ndarray], ...]
    """Log-probability and attention weights of each step."""

    def extend(self, symbol: int, total: np.float32, log_probability: float, weights: np.ndarray) -> "BeamHypothesis":
        """Return the hypothesis with one more symbol."""
        return BeamHypothesis((*self.ids, symbol), total, (*self.steps, (log_probability, weights)))


class EncodedSource(NamedTuple):
    """A source in symbols and ids, features first."""

    symbols: list[str]
    ids: list[int]
    num_features: int


class OnnxGraph:
    """A graph, ready to run on one thread; 8-bit weights are dequantized when it is loaded, not at each step."""

    def __init__(self, path: Path) -> None:
        """Load the file of a graph."""
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        options.add_session_config_entry("session.disable_quant_qdq", "1")
        self.session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        self.inputs = [entry.name for entry in self.session.get_inputs()]
        self.outputs = [entry.name for entry in self.session.get_outputs()]

    def run(self, values: Mapping[str, np.ndarray]) -> Values:
        """Return the outputs by name for those values that are inputs."""
        results = self.session.run(self.outputs, {name: values[name] for name in self.inputs})
        return dict(zip(self.outputs, results, strict=True))


class OnnxModel:
    """An exported network: its two graphs, symbols, and search settings."""

    def __init__(self, folder: str | Path) -> None:
        """Load the files of a folder.

        Args:
            folder: Folder that `pellucid export --onnx` has written.

        Raises:
            ValueError: The folder has another format or version.
        """
        self.settings: dict[str, Any] = json.loads((Path(folder) / "pellucid.json").read_text("utf-8"))
        if (self.settings["format"], self.settings["version"]) != (FORMAT, VERSION):
            raise ValueError(f"{folder}: expected {FORMAT} of version {VERSION}")
        self.encoder, self.step = (OnnxGraph(Path(folder) / f"{name}.onnx") for name in ("encoder", "decoder_step"))
        columns = (self.settings[name]["symbols"] for name in ("source", "features", "target"))
        self.source_ids, self.feature_ids, self.target_ids = (
            {symbol: number for number, symbol in enumerate(symbols, UNK + 1)} for symbols in columns
        )
        self.state_names = [name[len("next_") :] for name in self.step.outputs if name.startswith("next_")]

    def decode(self, source: str, features: str = "", beam_size: int | None = None, nbest: int = 1) -> list[OnnxOutput]:
        """Return the best outputs of a source, the best first.

        Args:
            source: Text of the source.
            features: Text of its features, for a network that was trained with features.
            beam_size: Number of hypotheses; None for that of the run.
            nbest: Maximum number of outputs; a greater one than the beam size enlarges the beam.

        Raises:
            ValueError: The source has too many symbols, or features that the network does not read.
        """
        encoded = self.encode(source, features)
        if len(encoded.symbols) == encoded.num_features:
            return [OnnxOutput("", [], 0.0, np.zeros((0, 0), np.float32))]
        size = max(self.settings["search"]["beam_size"] if beam_size is None else beam_size, nbest)
        limits = self.length_limits(len(encoded.symbols) - encoded.num_features)
        return [self._output(hypothesis, encoded) for hypothesis in self._search(encoded.ids, limits, size, nbest)]

    def encode(self, source: str, features: str = "") -> EncodedSource:
        """Return the symbols and ids of a source.

        Args:
            source: Text of the source.
            features: Text of its features.

        Raises:
            ValueError: There are too many symbols, or features that the network does not read.
        """
        if features and not self.settings["features"]["symbols"]:
            raise ValueError("the network was trained without features")
        num_source = len(self.source_ids) + UNK + 1
        names = _split(features, self.settings["features"])
        symbols = [*names, *_split(source, self.settings["source"])]
        if len(symbols) - len(names) > self.settings["max_source_symbols"]:
            raise ValueError(f"the source has more than {self.settings['max_source_symbols']} symbols")
        ids = [num_source + self.feature_ids.get(name, UNK) for name in names]
        ids += [self.source_ids.get(symbol, UNK) for symbol in symbols[len(names) :]]
        if self.settings["copies"]:
            ids = [self._copied_id(symbols, names, index) if id == UNK else id for index, id in enumerate(ids)]
        return EncodedSource(symbols, ids, len(names))

    def _copied_id(self, symbols: Sequence[str], features: Sequence[str], index: int) -> int:
        """Return the id of an unknown symbol for a network that copies: its target id, or its first position."""
        num_ids = len(self.source_ids) + len(self.feature_ids) + 2 * (UNK + 1)
        num_targets = len(self.target_ids) + UNK + 1
        first = symbols.index(symbols[index], len(features))
        return num_ids + self.target_ids.get(symbols[index], num_targets + first)

    def length_limits(self, num_symbols: int) -> tuple[int, int]:
        """Return the minimum and maximum output length for a source, in symbols without EOS.

        Args:
            num_symbols: Number of symbols of the source, without features.
        """
        search = self.settings["search"]
        minimum, maximum = search["min_length"], search["max_length"]
        if search["min_length_ratio"]:
            product = math.ceil(round(search["min_length_ratio"] * num_symbols, 9))
            minimum = max(minimum, product + search["min_length_offset"])
        if search["max_length_ratio"]:
            product = math.floor(round(search["max_length_ratio"] * num_symbols, 9))
            maximum = min(maximum, max(product + search["max_length_offset"], 1))
        return min(minimum, maximum), maximum

    def _search(self, ids: Sequence[int], limits: tuple[int, int], size: int, nbest: int) -> list[BeamHypothesis]:
        """Return the best outputs of a source by beam search.

        If outputs are ranked by log-probability, each finished output reduces the beam by one hypothesis. With another
        score, the beam keeps its size, and the search ends when none of its hypotheses can exceed the finished outputs.
        """
        lengths, source = np.array([len(ids)], np.int64), np.array([ids], np.int64)
        values = self.encoder.run({"ids": source, "lengths": lengths})
        beam, finished, num_free = [BeamHypothesis((), np.float32(0), ())], list[BeamHypothesis](), size
        for length in range(limits[1] + 1):
            symbols = np.array([hypothesis.ids[-1] if hypothesis.ids else BOS for hypothesis in beam], np.int64)
            outputs = self.step.run({**values, "symbols": symbols, "lengths": lengths})
            count = num_free if self._ranks_by_log_probability else size + len(beam)
            parents, extended = _extend(beam, outputs, count, may_end=length >= limits[0])
            finished += (ended := [hypothesis for hypothesis in extended if hypothesis.ids[-1] == EOS])
            num_free -= len(ended)
            kept = [pair for pair in zip(parents, extended, strict=True) if pair[1].ids[-1] != EOS][:size]
            if not kept or length == limits[1]:
                ended_ids = {hypothesis.ids[:-1] for hypothesis in ended}
                rest = [hypothesis for hypothesis in beam if hypothesis.ids not in ended_ids]
                return (self._rank(finished) + self._rank(rest) * (length == limits[1] or not finished))[:nbest]
            best = self._rank(finished)[nbest - 1 : nbest]
            if best and self.score(best[0]) >= kept[0][1].total / self._length_penalty(limits[1] + 1):
                break
            beam, rows = [hypothesis for _, hypothesis in kept], [parent for parent, _ in kept]
            values |= {name: outputs[f"next_{name}"][rows] for name in self.state_names}
        return self._rank(finished)[:nbest]

    @property
    def _ranks_by_log_probability(self) -> bool:
        """Return whether outputs are ranked by their log-probability alone."""
        search = self.settings["search"]
        return search["length_normalization"] == "none" and not search["coverage_penalty"]

    def _rank(self, hypotheses: list[BeamHypothesis]) -> list[BeamHypothesis]:
        """Return hypotheses by descending score."""
        return sorted(hypotheses, key=self.score, reverse=True)

    def score(self, hypothesis: BeamHypothesis) -> np.float32:
        """Return the score of an output: log p / lp + β Σ_s log min(Σ_t α_ts, 1) (Wu et al. 2016, equation 14).

        Args:
            hypothesis: The output.
        """
        score = hypothesis.total / self._length_penalty(len(hypothesis.steps))
        weight = np.float32(self.settings["search"]["coverage_penalty"])
        if weight and hypothesis.steps:
            coverage = np.sum([weights for _, weights in hypothesis.steps], axis=0)
            if coverage.any():
                score += weight * np.log(np.clip(coverage, 1e-6, 1)).sum()
        return np.float32(score)

    def _length_penalty(self, steps: int) -> np.float32:
        """Return lp: 1, the number of steps with that of EOS, or ((5 + steps) / 6)^α."""
        search, length = self.settings["search"], np.float32(max(steps, 1))
        match search["length_normalization"]:
            case "average":
                return length
            case "gnmt":
                power = ((5 + length) / np.float32(6)) ** np.float32(search["length_penalty_alpha"])
                return np.float32(min(power, np.finfo(np.float32).max))
            case _:
                return np.float32(1)

    def _output(self, hypothesis: BeamHypothesis, encoded: EncodedSource) -> OnnxOutput:
        """Return an output in symbols; ids beyond the vocabulary are copied from the source."""
        known, names = len(self.target_ids) + UNK + 1, self.settings["target"]["symbols"]
        ids = hypothesis.ids[:-1] if hypothesis.ids[-1:] == (EOS,) else hypothesis.ids
        symbols = [names[id - UNK - 1] if id < known else encoded.symbols[id - known] for id in ids]
        kind = self.settings["target"]["kind"]
        text, log_probability = JOINED_BY.get(kind, kind).join(symbols), sum(p for p, _ in hypothesis.steps)
        attention = np.array([weights for _, weights in hypothesis.steps]).reshape(-1, len(encoded.ids))
        return OnnxOutput(text, symbols, log_probability, attention)


def _extend(
    beam: Sequence[BeamHypothesis], outputs: Values, count: int, may_end: bool
) -> tuple[list[int], list[BeamHypothesis]]:
    """Return the parents of the best extensions, and these extensions, the most probable first."""
    log_probabilities, weights = outputs["log_probabilities"], outputs["attention_weights"]
    totals = np.array([[hypothesis.total] for hypothesis in beam]) + log_probabilities
    if not may_end:
        totals[:, EOS] = -np.inf
    flat = totals.ravel()
    best = np.argsort(-flat, kind="stable")[:count]
    parents, symbols = (values.tolist() for values in np.divmod(best[np.isfinite(flat[best])], totals.shape[1]))
    places = list(zip(parents, symbols, strict=True))
    return parents, [beam[p].extend(s, totals[p, s], float(log_probabilities[p, s]), weights[p]) for p, s in places]


def _split(text: str, column: Mapping[str, Any]) -> list[str]:
    """Return the symbols of a text, after Unicode normalization."""
    kind, normalization = column["kind"], column["normalization"]
    text = text if normalization == "none" else unicodedata.normalize(normalization.upper(), text)
    if kind == "characters":
        return list(text)
    if kind == "ipa":
        return _split_phones(text)
    if kind == "words":
        return text.split()
    if not text:
        return []
    return [text] if kind == "whole" else text.split(kind)


def _split_phones(text: str) -> list[str]:
    """Return the phones of a text in IPA: letters with their marks and modifiers; a tie bar joins two letters."""
    phones, has_letter, is_tied = list[str](), False, False
    for character in text:
        category, is_boundary = unicodedata.category(character), character in BOUNDARY_MARKS
        in_range = any(first <= character <= last for first, last in MODIFIER_RANGES)
        is_modifier = not is_boundary and (category == "Lm" or in_range)
        is_letter = not is_boundary and not is_modifier and category[0] == "L"
        if phones and (category[0] == "M" or (has_letter and (is_modifier or (is_letter and is_tied)))):
            phones[-1] += character
            is_tied = has_letter and not is_letter and (is_tied or character in TIE_BARS)
        else:
            phones.append(character)
            has_letter, is_tied = is_letter or is_modifier, False
    return phones


def main() -> None:
    """Write the outputs of each line of a file."""
    parser = argparse.ArgumentParser(description="Decode sources with a network that Pellucid has exported.")
    parser.add_argument("folder", metavar="DIR", help="folder of the export")
    parser.add_argument("file", metavar="FILE", help="sources, one per line; - is standard input")
    parser.add_argument("--beam-size", type=int, metavar="K", help="beam size (that of the run)")
    parser.add_argument("--nbest", type=int, default=1, metavar="N", help="outputs per source, separated by tabs")
    arguments = parser.parse_args()
    model = OnnxModel(arguments.folder)
    stdout = open(sys.stdout.fileno(), "w", encoding="utf-8", newline="\n", closefd=False)  # noqa: SIM115
    if arguments.file == "-":
        with suppress(AttributeError, OSError):  # reading a pipe waits for its writer, also if another program set it
            os.set_blocking(sys.stdin.fileno(), True)
    with open(sys.stdin.fileno() if arguments.file == "-" else arguments.file, encoding="utf-8-sig") as lines, stdout:
        for line in lines:
            source, _, features = line.rstrip("\r\n").partition("\t" if model.feature_ids else "\n")
            outputs = model.decode(source, features, arguments.beam_size, arguments.nbest)
            stdout.write("\t".join(output.text for output in outputs) + "\n")


if __name__ == "__main__":
    main()
