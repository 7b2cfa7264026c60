"""The pairs of benchmarks/compound_pairs.py: entries of the dictionary, and the same ones for the same seed."""

from pathlib import Path

from benchmarks.compound_pairs import main

ENTRIES = ["ab\tA B", "c\tC", "de\tD E"]


def test_each_pair_joins_two_entries_and_the_seed_decides(tmp_path: Path) -> None:
    dictionary = tmp_path / "dictionary.tsv"
    dictionary.write_text("\n".join(ENTRIES) + "\n", "utf-8")
    expected = {
        "\t".join(join.join(parts) for join, parts in zip("- ", zip(*(first, second), strict=True), strict=True))
        for first in (line.split("\t") for line in ENTRIES)
        for second in (line.split("\t") for line in ENTRIES)
    }
    texts = {}
    for name, seed in (("a", 1), ("same", 1), ("other", 2)):
        path = tmp_path / f"{name}.tsv"
        assert main([str(dictionary), "--pairs", "200", "--seed", str(seed), "--out", str(path)]) == 0
        texts[name] = path.read_text("utf-8")
    assert texts["a"] == texts["same"] != texts["other"]
    assert len(texts["a"].splitlines()) == 200 and set(texts["a"].splitlines()) == expected
