"""Equations in LaTeX as MathML."""

from xml.etree import ElementTree

import pytest

from pellucid.viewer.mathml import NAMESPACE, to_mathml


def shape(latex: str) -> str:
    """Return the elements of an equation as nested names and texts, without the namespace and invisible operators."""

    def describe(element: ElementTree.Element) -> str:
        """Describe one element."""
        inner = "".join(describe(each) for each in element if each.text not in ("\u2061", "\u2062"))
        name = element.tag.removeprefix(f"{{{NAMESPACE}}}")
        return f"{name}({inner or element.text or ''})" if name != "mrow" else inner

    return describe(ElementTree.fromstring(to_mathml(latex)))


@pytest.mark.parametrize(
    ("latex", "expected"),
    [
        ("v^\\top", "math(msup(mi(v)mo(⊤)))"),
        ("b'_r", "math(msubsup(mi(b)mi(r)mo(′)))"),
        ("s_{t-1}^{(2)}", "math(msubsup(mi(s)mi(t)mo(−)mn(1)mo(()mn(2)mo())))"),
        (r"\frac{1}{2}", "math(mfrac(mn(1)mn(2)))"),
        (r"\sqrt{D}", "math(msqrt(mi(D)))"),
        (r"\sum_{s=1}^{12}", "math(munderover(mo(∑)mi(s)mo(=)mn(1)mn(12)))"),
        (r"\sum_s", "math(munder(mo(∑)mi(s)))"),
        (r"\overrightarrow{h}_s", "math(msub(mover(mi(h)mo(→))mi(s)))"),
        (r"\mathrm{softmax}(e)", "math(mi(softmax)mo(()mi(e)mo()))"),
        (r"p \text{ if } q", "math(mi(p)mtext(\xa0if\xa0)mi(q))"),
        (r"e > 0", "math(mi(e)mo(>)mn(0))"),
    ],
)
def test_equation_is_mathml(latex: str, expected: str) -> None:
    assert shape(latex) == expected


def test_products_and_function_applications_are_marked_for_screen_readers() -> None:
    assert "<mi>W</mi><mo>\u2062</mo><msub>" in to_mathml("W h_s")
    assert '<mi>tanh</mi><mo>\u2061</mo><mo stretchy="false">(</mo>' in to_mathml(r"\tanh(x)")
    assert "\u2062" not in to_mathml("p_t(y) = x + y")


@pytest.mark.parametrize("latex", [r"\unknown", "a}", "{a", "a_", r"\frac{1}"])
def test_equation_outside_the_subset_is_refused(latex: str) -> None:
    with pytest.raises(ValueError, match=r"equation|brace"):
        to_mathml(latex)
