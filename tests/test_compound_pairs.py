"""The pairs of benchmarks/compound_pairs.py: entries of the dictionary, and the same ones for the same seed."""

from pathlib import Path

from benchmarks.compound_pairs import main

ENTRIES = [("ab", "A B"), ("c", "C"), ("de", "D E")]


def test_each_pair_joins_two_entries_and_the_seed_decides(tmp_path: Path) -> None:
    dictionary = tmp_path / "dictionary.tsv"
    dictionary.write_text("".join(f"{source}\t{target}\n" for source, target in ENTRIES), "utf-8")
    expected = {f"{a}-{b}\t{target_a} {target_b}" for a, target_a in ENTRIES for b, target_b in ENTRIES}
    texts = {}
    for name, seed in (("a", 1), ("same", 1), ("other", 2)):
        path = tmp_path / f"{name}.tsv"
        assert main([str(dictionary), "--pairs", "200", "--seed", str(seed), "--out", str(path)]) == 0
        texts[name] = path.read_text("utf-8")
    assert texts["a"] == texts["same"] != texts["other"]
    assert len(texts["a"].splitlines()) == 200 and set(texts["a"].splitlines()) == expected
