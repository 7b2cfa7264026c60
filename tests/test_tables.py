"""Tables abbreviate long names."""

from hypothesis import given
from hypothesis import strategies as st

from pellucid.reporting.tables import MAX_NAME_LENGTH, short_names


def test_long_names_lose_their_common_prefix_then_their_middle() -> None:
    assert short_names(["base", "large"]) == ["base", "large"]
    assert short_names(["g2p-sigmorphon2020-armenian-a", "g2p-sigmorphon2020-dutch"]) == ["…armenian-a", "…dutch"]
    one, other = short_names(["a" * 30 + "x", "a" * 30 + "y"])
    assert len(one) == len(other) == MAX_NAME_LENGTH and one[-1] == "x" and other[-1] == "y" and "…" in one
    one, other = short_names(["x" + "a" * 60, "y" + "a" * 60])
    assert one[0] == "x" and other[0] == "y" and len(one) <= MAX_NAME_LENGTH
    one, other = short_names(["m" * 40 + "x" + "m" * 40, "m" * 40 + "y" + "m" * 40])
    assert one != other
    assert (
        short_names(["runs/here/and/there/a", "runs/here/and/there/a"])[0] == short_names(["runs/here/and/there/a"])[0]
    )


@given(st.lists(st.text("ab-/", min_size=1, max_size=60), min_size=1, max_size=4, unique=True))
def test_short_names_stay_distinct(names: list[str]) -> None:
    assert len(set(short_names(names))) == len(names) and len(short_names(names)) == len(names)
