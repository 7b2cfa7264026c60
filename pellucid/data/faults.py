"""What is wrong with a pair, in words."""

from pellucid.config import DataConfig
from pellucid.data.symbols import Segmenter, Segmenters
from pellucid.errors import parse_whole_number, quote


def pair_fault(source: str, target: str, sides: Segmenters, config: DataConfig) -> str:
    """Why a pair is none; "" for one that is."""
    maximum = config.maximum_length
    reason = length_fault("source", source, sides.source, maximum)
    reason = reason or length_fault("target", target, sides.target, maximum)
    if reason:
        return reason
    if sides.target.kind == "position":
        return _position_fault(target, sides.source.count(source))
    return _alignment_fault(source, target, sides) if config.aligned else ""


def length_fault(side: str, text: str, segmenter: Segmenter, maximum: int, least: int = 1) -> str:
    """Why a text has too few or too many symbols; "" for one that has not."""
    # No Unicode form is longer than four times the text, and no cut gives more parts than characters plus one.
    if 4 * len(text) < maximum and text.strip():
        return ""
    count = segmenter.count(text)
    if count < least:
        return f"the {side} is empty"
    if count > maximum:
        lines = text.count("\n") + 1
        joined = f" (it spans {lines} lines: is a quote missing?)" if lines > 1 else ""
        return f"the {side} has {count} symbols{joined}, more than data.maximum_length = {maximum}"
    return ""


def _position_fault(target: str, positions: int) -> str:
    """Why a target is no position of a source with so many symbols."""
    number = parse_whole_number(target)
    if number is not None and number <= positions and str(number) == target and number:
        return ""
    return f"the target is no position of the source: expected a number from 1 to {positions}, got {quote(target)}"


def _alignment_fault(source: str, target: str, sides: Segmenters) -> str:
    """Why target symbols do not stand beside source symbols, or none of them is scored."""
    read, written = len(sides.source.split(source)), sides.target.split(target)
    if read != len(written):
        return f"the source has {read} symbols, but the target has {len(written)}: they must pair up (data.aligned)"
    unscored = sides.target.unscored
    if unscored and all(symbol == unscored for symbol in written):
        return f"no symbol of the target is scored: all are {quote(unscored)} (data.unscored)"
    return ""
