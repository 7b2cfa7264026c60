"""Seeded mutations of inputs for fuzzing: of bytes, and of the parts of JSON, TOML, safetensors, gzip and HTTP.

An input of a target is one byte that selects a variant of the reader, and the content of a file. `mutate` changes
either; the same generator gives the same inputs.
"""

import gzip
import json
import random
import zlib
from collections.abc import Callable, Sequence
from typing import Any, Literal

Structure = Literal["text", "json", "toml", "safetensors", "arrow", "gzip", "http"]
"""Structure of a content. "text" has none, and serves Parquet, too."""
LINE_ENDS = (b"\r", b"\r\n", b"\n\r", b"\n\xef\xbb\xbf", b"\x0b", b"\xe2\x80\xa8")
"""Texts that replace all newlines: those of other systems, and characters that look like one."""
MAX_SIZE = 1 << 16
"""Maximum size of a mutated input, in bytes."""
TOKENS = (
    *(
        b"\t",
        b"\n",
        b"\r\n",
        b"\r",
        b"\0",
        b'"',
        b'""',
        b",",
        b";",
        b"|",
        b"'",
        b"\\",
        b" ",
        b"\xef\xbb\xbf",
        b"\xff\xfe",
    ),
    *(b"\xff", b"\xc0\xaf", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xe2\x80\xa8", b"\xc2\x85", b"\x0c", b"\x1b[31m"),
    *(b"{", b"}", b"[", b"]", b":", b"null", b"true", b"{}", b"[]", b'"\\ud800"', b"\\u0000", b"=", b"#", b"[[", b"]]"),
    *(b"PK\x03\x04", b"\x1f\x8b", b"PAR1", b"ARROW1", b"source", b"target", b"e\xcc\x81", b"\xf0\x9f\x98\x80", b"%"),
    *(b"\xcc\x81\xcc\xa3", b"\xe0\xbd\xb3", b"\xe9"),
    *("⟨pad⟩".encode(), "⟨end⟩".encode(), b"\xe2\x80\xae", b"__metadata__", b"sha256", b"format", b"data_offsets"),
)
NUMBERS = (
    *(b"0", b"-0", b"1", b"-1", b"2147483648", b"4294967296", b"9007199254740993", b"9223372036854775808", b"1e400"),
    *(b"-1e400", b"NaN", b"Infinity", b"1e-400", b"0.1", b"3.5e38", b"1e300", b"9" * 30, b"1" + b"0" * 5000, b"1_000"),
)
TOML_NUMBERS = (b"nan", b"-nan", b"inf", b"-inf", b"1e-320", b"0x1F", b"1_0", b"0.1", b"0", b"0.5", b"-3", b"1e-9")
"""Numbers in the spelling of TOML."""
VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1, 2**31, 2**53 + 1, 2**63, 2**64, -(2**63) - 1, 10**30, 0.5, -0.0, 1e300, 1e-320, ""),
    *("a", "⟨pad⟩", "\0", "\ud800", "a" * 70000, "../x", "/etc/passwd", "é", [], {}, [[]], [None], {"": None}, [0, 0]),
)
"""Values that replace those of JSON."""


def mutate(content: bytes, structure: Structure, rng: random.Random, others: Sequence[bytes] = ()) -> bytes:
    """Return a changed input of at most `MAX_SIZE` bytes.

    Args:
        content: Byte of the variant, and the content.
        structure: Structure of the content.
        rng: Random generator.
        others: Other inputs, of which parts may be copied.
    """
    variant, rest = content[:1] or b"\0", content[1:]
    if rng.random() < 0.05:
        variant = bytes([rng.randrange(256)])
    change = MUTATIONS[structure]
    for _ in range(rng.choice((1, 1, 1, 2, 3, 6))):
        rest = change(rest, rng) if rng.random() < 0.6 else mutate_bytes(rest, rng, others)
    return (variant + rest)[:MAX_SIZE]


def mutate_bytes(content: bytes, rng: random.Random, others: Sequence[bytes] = ()) -> bytes:
    """Return a content in which bytes, numbers, lines or blocks are changed, removed, repeated or inserted.

    Args:
        content: The content.
        rng: Random generator.
        others: Other inputs, of which parts may be copied.
    """
    place = rng.randrange(len(content) + 1)
    length = min(len(content) - place, rng.choice((1, 1, 2, 4, 8, 30, 200)))
    before, block, after = content[:place], content[place : place + length], content[place + length :]
    match rng.randrange(10):
        case 0:
            return before + bytes([rng.randrange(256)]) + after
        case 1:
            return before + bytes(byte ^ (1 << rng.randrange(8)) for byte in block) + after
        case 2:
            return before + after
        case 3:
            return before + block * rng.choice((2, 3, 50, 1000)) + after
        case 4:
            return before + rng.choice(TOKENS) + block + after
        case 5:
            return _replace_number(content, rng)
        case 6:
            return before + _part_of(others, rng) + after
        case 7:
            return _move_line(content, rng)
        case 8:  # a run of two tokens in turn
            return before + (rng.choice(TOKENS) + rng.choice(TOKENS)) * rng.choice((3, 100, 1500)) + after
        case _:
            return before if rng.random() < 0.3 else before + block + rng.choice(TOKENS) * rng.randint(1, 9) + after


def _part_of(others: Sequence[bytes], rng: random.Random) -> bytes:
    """Return a part of another input."""
    other = rng.choice(others) if others else b"\n"
    start = rng.randrange(len(other) + 1)
    return other[start : start + rng.choice((1, 10, 100, 1000, 10000))]


def _replace_number(content: bytes, rng: random.Random) -> bytes:
    """Return a content in which a run of digits is another number."""
    digits = [index for index, byte in enumerate(content[:4096]) if 48 <= byte < 58]
    if not digits:
        return content + rng.choice(NUMBERS)
    start = stop = rng.choice(digits)
    while content[stop : stop + 1].isdigit():
        stop += 1
    return content[:start] + rng.choice(NUMBERS) + content[stop:]


def _move_line(content: bytes, rng: random.Random) -> bytes:
    """Return a content in which a line is removed, repeated or moved, or all lines have another end."""
    if rng.random() < 0.2:
        return content.replace(b"\n", rng.choice(LINE_ENDS))
    lines = content.split(b"\n")
    line = lines.pop(rng.randrange(len(lines)))
    for _ in range(rng.choice((0, 1, 1, 2, 40))):
        lines.insert(rng.randrange(len(lines) + 1), line)
    return b"\n".join(lines)


def mutate_json(content: bytes, rng: random.Random) -> bytes:
    """Return JSON, or lines of JSON, in which a value is changed, removed, repeated, renamed or nested.

    Args:
        content: The content; other content is changed as bytes.
        rng: Random generator.
    """
    if content.count(b"\n") and content.startswith(b"{") and content[1:2] not in b"\n ":
        lines = content.split(b"\n")
        index = rng.randrange(len(lines))
        lines[index] = _mutate_json_text(lines[index], rng)
        return b"\n".join(lines)
    return _mutate_json_text(content, rng)


def _mutate_json_text(content: bytes, rng: random.Random) -> bytes:
    """Return one JSON text with a change."""
    try:
        value = json.loads(content)
    except (ValueError, RecursionError):
        return mutate_bytes(content, rng)
    text = json.dumps(_mutate_value(value, rng), ensure_ascii=rng.random() < 0.5)
    if rng.random() < 0.03:
        depth = rng.choice((10, 900, 1100, 20_000))
        text = text.replace("null", "[" * depth + "]" * depth, 1)
    if rng.random() < 0.05 and text.startswith("{"):  # repeat the keys
        text = text[:-1] + ", " + text[1:] if len(text) > 2 else text
    return text.encode("utf-8", "surrogatepass")


def _mutate_value(value: Any, rng: random.Random) -> Any:  # noqa: ANN401 (any JSON)
    """Return a value of JSON in which one part is changed."""
    if isinstance(value, dict) and value and rng.random() < 0.9:
        key = rng.choice(list(value))
        if rng.random() < 0.75:
            return {**value, key: _mutate_value(value[key], rng)}
        kept = {name: item for name, item in value.items() if name != key}
        return kept if rng.random() < 0.5 else {**kept, rng.choice((key + "x", "", "format")): value[key]}
    if isinstance(value, list) and value and rng.random() < 0.9:
        index = rng.randrange(len(value))
        match rng.randrange(4):
            case 0:
                return value[:index] + value[index + 1 :]
            case 1:
                return value[:index] + [value[index]] * rng.choice((2, 3, 300)) + value[index + 1 :]
            case _:
                return [*value[:index], _mutate_value(value[index], rng), *value[index + 1 :]]
    if isinstance(value, str) and rng.random() < 0.4:
        return _mutate_string(value, rng)
    if isinstance(value, int | float) and -1e15 < value < 1e15 and rng.random() < 0.4:
        return value + rng.choice((1, -1, 0.5, 2**32)) if rng.random() < 0.7 else -value
    return rng.choice(VALUES) if rng.random() < 0.9 else [value]


def _mutate_string(value: str, rng: random.Random) -> str:
    """Return a changed string; JSON within a string is changed as JSON."""
    if value[:1] in ("{", "["):
        return _mutate_json_text(value.encode("utf-8", "surrogatepass"), rng).decode("utf-8", "replace")
    place = rng.randrange(len(value) + 1)
    return value[:place] + rng.choice(("", "a", "\t", "\n", "\0", "\u202e", "9", "\udfff", "-")) + value[place + 1 :]


def mutate_toml(content: bytes, rng: random.Random) -> bytes:
    """Return TOML in which a value, a key or a section is changed.

    Args:
        content: The content.
        rng: Random generator.
    """
    lines = content.split(b"\n")
    assignments = [index for index, line in enumerate(lines) if b"=" in line and not line.startswith(b"#")]
    if not assignments:
        return mutate_bytes(content, rng)
    index = rng.choice(assignments)
    key, _, value = lines[index].partition(b"=")
    depth = rng.choice((5, 200, 3000))
    replacements = (
        *(
            rng.choice(NUMBERS),
            rng.choice(TOML_NUMBERS),
            b"{from = 0.1, to = 0.5, step = %s}" % rng.choice(TOML_NUMBERS),
        ),
        *(b'"' + rng.choice(TOKENS) + b'"', b"true", b"[]", b"{}", b"''", b'"\\uD800"'),
        *(
            b"[" * depth + b"]" * depth,
            b"{a = " * depth + b"1" + b"}" * depth,
            b"2020-01-01",
            value * 2,
        ),
    )
    match rng.randrange(5):
        case 0:
            lines[index] = key + b"." + key + b"=" + value
        case 1:
            lines.insert(index, rng.choice((b"[encoder]", b"[x]", b"[data.x]", b"[[data]]", b"a." * depth + b"b=1")))
        case _:
            lines[index] = key + b"= " + rng.choice(replacements)
    return b"\n".join(lines)


def mutate_safetensors(content: bytes, rng: random.Random) -> bytes:
    """Return a safetensors file in which the header or its length, offsets, shapes or numbers are changed.

    Args:
        content: The content.
        rng: Random generator.
    """
    length = int.from_bytes(content[:8], "little")
    if len(content) < 8 or length > len(content):
        return mutate_bytes(content, rng)
    header, data = content[8 : 8 + length], content[8 + length :]
    match rng.randrange(6):
        case 0:
            wrong = rng.choice((0, 1, length - 1, length + 1, 2**24, 2**32, 2**63, 2**64 - 1)) % 2**64
            return wrong.to_bytes(8, "little") + header + data
        case 1:
            data = mutate_bytes(data, rng)
        case 2 if data:  # a number that is not finite, or the largest
            place = 4 * rng.randrange(max(1, len(data) // 4))
            odd = rng.choice((b"\0\0\xc0\x7f", b"\0\0\x80\x7f", b"\0\0\x80\xff", b"\xff\xff\x7f\x7f", b"\1\0\0\0"))
            data = data[:place] + odd + data[place + 4 :]
        case _:
            header = _mutate_json_text(header, rng)
    return len(header).to_bytes(8, "little") + header + data


def mutate_arrow(content: bytes, rng: random.Random) -> bytes:
    """Return an Arrow file in which numbers of four or eight bytes at their places are changed.

    Args:
        content: The content.
        rng: Random generator.
    """
    size = rng.choice((4, 8))
    if len(content) < 2 * size:
        return mutate_bytes(content, rng)
    place = size * rng.randrange(len(content) // size)
    number = int.from_bytes(content[place : place + size], "little")
    number += rng.choice((1, -1, 2, 256, 2**31, -(2**16)))
    limits: tuple[int, ...] = (0, 1, 1 << (8 * size - 1), (1 << (8 * size)) - 1)
    number = number if rng.random() < 0.7 else rng.choice(limits)
    return content[:place] + (number % (1 << (8 * size))).to_bytes(size, "little") + content[place + size :]


def mutate_gzip(content: bytes, rng: random.Random) -> bytes:
    """Return gzip whose content, header, end or members are changed.

    Args:
        content: The content.
        rng: Random generator.
    """
    match rng.randrange(6):
        case 0:
            flags = bytes([rng.randrange(32)])
            return content[:3] + flags + content[4:]
        case 1:
            return content + gzip.compress(b"a\tb\n" * rng.choice((1, 100, 5000)), mtime=0)
        case 2:
            return content + b"\0" * rng.choice((1, 100))
        case _:
            try:
                plain = zlib.decompressobj(31).decompress(content, MAX_SIZE)
            except zlib.error:
                return mutate_bytes(content, rng)
            return gzip.compress(mutate_bytes(plain, rng), rng.choice((0, 1, 9)), mtime=0)


def mutate_http(content: bytes, rng: random.Random) -> bytes:
    """Return an HTTP request whose JSON body, with a correct length, or whose headers are changed.

    Args:
        content: The content.
        rng: Random generator.
    """
    head, separator, body = content.partition(b"\r\n\r\n")
    if not separator or rng.random() < 0.4:
        return mutate_bytes(head, rng) + separator + body
    body = _mutate_json_text(body, rng) if body else b'{"rows": [{"source": "a"}]}'
    lines = [line for line in head.split(b"\r\n") if not line.lower().startswith(b"content-length")]
    return b"\r\n".join([*lines, b"Content-Length: %d" % len(body), b"", body])


MUTATIONS: dict[Structure, Callable[[bytes, random.Random], bytes]] = {
    "text": mutate_bytes,
    "json": mutate_json,
    "toml": mutate_toml,
    "safetensors": mutate_safetensors,
    "arrow": mutate_arrow,
    "gzip": mutate_gzip,
    "http": mutate_http,
}


def minimize(content: bytes, fails: Callable[[bytes], bool], max_trials: int = 400) -> bytes:
    """Return a short input that still fails; the byte of the variant stays.

    Args:
        content: Input that fails.
        fails: Function that returns whether an input fails in the same way.
        max_trials: Maximum number of calls.
    """
    size = max(1, len(content) // 2)
    trials = 0
    while size and trials < max_trials:
        place, shortened = 1, False
        while place < len(content) and trials < max_trials:
            candidate = content[:place] + content[place + size :]
            trials += 1
            if fails(candidate):
                content, shortened = candidate, True
            else:
                place += size
        size = size if shortened and size > 1 else size // 2
    return content
