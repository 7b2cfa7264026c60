"""Equations in a subset of LaTeX as MathML, which browsers display without a library.

The subset is that of model/equations.py: letters, numbers, operators, brackets, scripts, primes, `\\frac`, `\\sqrt`,
accents, `\\mathrm`, `\\text`, and the commands of `OPERATORS`, `GREEK` and `FUNCTIONS`.
"""

import re
from collections import deque
from html import escape
from typing import NamedTuple

from pellucid.errors import quote

NAMESPACE = "http://www.w3.org/1998/Math/MathML"
TOKEN = re.compile(r"\\(?:mathrm|text)\{[^}]*\}|\\[a-zA-Z]+|\\\||[0-9]+|\S")
NAMED = re.compile(r"\\(mathrm|text)\{([^}]*)\}")
GREEK = {"alpha": "α", "gamma": "γ", "kappa": "κ", "sigma": "σ"}
FUNCTIONS = ("tanh",)
OPERATORS = {
    "odot": "⊙",
    "top": "⊤",
    "le": "≤",
    "ldots": "…",
    "sum": "∑",
    "prod": "∏",
    "|": "‖",
    "-": "−",
    "'": "′",
}
ACCENTS = {"overrightarrow": "→", "overleftarrow": "←", "tilde": "~", "bar": "¯"}
LARGE = ("∑", "∏")
"""Operators whose scripts are below and above them."""
BRACKETS = "()[]"
PRODUCT, APPLICATION = "\u2062", "\u2061"
"""Invisible operators, which screen readers read: times, and function application."""


class _Element(NamedTuple):
    """An element, and its role in a row."""

    mathml: str
    is_operator: bool = False
    is_function: bool = False
    text: str = ""
    """Text of an operator."""


def to_mathml(latex: str) -> str:
    """Return an equation as a MathML element.

    Args:
        latex: The equation, in the subset of this module.

    Raises:
        ValueError: The equation has an unknown command, or braces that do not match.
    """
    tokens = deque(TOKEN.findall(latex))
    row = _read_row(tokens)
    if tokens:
        raise ValueError(f"unmatched brace in {quote(latex)}")
    return f'<math xmlns="{NAMESPACE}" displaystyle="true">{row}</math>'


def _read_row(tokens: deque[str]) -> str:
    """Read up to a closing brace or the end, and return the elements as a row."""
    elements = list[_Element]()
    while tokens and tokens[0] != "}":
        elements.append(_read_scripted(tokens))
    parts, previous = list[str](), None
    for element in elements:
        if previous is not None:
            parts.append(_invisible_operator(previous, element))
        parts.append(element.mathml)
        previous = element
    return f"<mrow>{''.join(parts)}</mrow>"


def _invisible_operator(left: _Element, right: _Element) -> str:
    """Return the invisible operator between two elements: application of a function, a product, or none."""
    if left.is_function:
        return f"<mo>{APPLICATION}</mo>"
    begins_operand = not right.is_operator or right.text in ("[", *LARGE)
    return f"<mo>{PRODUCT}</mo>" if not left.is_operator and begins_operand else ""


def _read_scripted(tokens: deque[str]) -> _Element:
    """Read an element with its subscript, its superscript and its prime."""
    base = _read_element(tokens)
    scripts = dict[str, str]()
    while tokens and tokens[0] in ("_", "^", "'"):
        kind = tokens.popleft()
        scripts["^" if kind == "'" else kind] = "<mo>′</mo>" if kind == "'" else _read_element(tokens).mathml
    if not scripts:
        return base
    below, above = ("under", "over") if base.text in LARGE else ("sub", "sup")
    name = f"m{below if '_' in scripts else ''}{above if '^' in scripts else ''}"
    inner = "".join(scripts[kind] for kind in "_^" if kind in scripts)
    return base._replace(mathml=f"<{name}>{base.mathml}{inner}</{name}>")


def _read_element(tokens: deque[str]) -> _Element:
    """Read one element without scripts."""
    if not tokens:
        raise ValueError("an equation ends before a script or an argument")
    token = tokens.popleft()
    if token == "{":
        return _Element(_read_group(tokens))
    if named := NAMED.fullmatch(token):
        kind, text = named.groups()
        if kind == "text":
            return _Element(f"<mtext>{escape(text).replace(' ', chr(160))}</mtext>", is_operator=True)
        return _Element(f"<mi>{escape(text)}</mi>", is_function=True)
    return _read_command(token[1:], tokens) if token[0] == "\\" else _read_character(token)


def _read_group(tokens: deque[str]) -> str:
    """Read the rest of a group in braces."""
    row = _read_row(tokens)
    if not tokens:
        raise ValueError("unmatched brace in an equation")
    tokens.popleft()
    return row


def _read_command(name: str, tokens: deque[str]) -> _Element:
    """Read the arguments of a command."""
    if name in GREEK:
        return _Element(f"<mi>{GREEK[name]}</mi>", is_function=name == "sigma")
    if name in FUNCTIONS:
        return _Element(f"<mi>{name}</mi>", is_function=True)
    if name in OPERATORS:
        return _Element(f"<mo>{OPERATORS[name]}</mo>", is_operator=True, text=OPERATORS[name])
    if name in ACCENTS:
        return _Element(f'<mover accent="true">{_read_element(tokens).mathml}<mo>{ACCENTS[name]}</mo></mover>')
    if name == "frac":
        return _Element(f"<mfrac>{_read_element(tokens).mathml}{_read_element(tokens).mathml}</mfrac>")
    if name == "sqrt":
        return _Element(f"<msqrt>{_read_element(tokens).mathml}</msqrt>")
    if name == "quad":
        return _Element('<mspace width="1.2em"/>', is_operator=True)
    raise ValueError(f"unknown command in an equation: {quote(name)}")


def _read_character(character: str) -> _Element:
    """Return a letter, a number or an operator."""
    if character.isdigit():
        return _Element(f"<mn>{character}</mn>")
    if character.isalpha():
        return _Element(f"<mi>{character}</mi>")
    text = OPERATORS.get(character, character)
    # Without a mathematical font, brackets that stretch are much higher than their content.
    attribute = ' stretchy="false"' if text in BRACKETS else ""
    return _Element(f"<mo{attribute}>{escape(text)}</mo>", is_operator=True, text=text)
