"""The comparison of runtime and PyTorch (benchmarks/runtime_equality.py), on a trained run."""

from trained_runs import digits_run

from benchmarks.runtime_equality import Case, compare_case, format_table, read_rows
from pellucid.decoding.lexicon import Lexicon
from pellucid.decoding.options import DecodingOptions

MAX_DIFFERENCE = 1e-4


def test_a_trained_run_gives_the_outputs_of_pytorch() -> None:
    run = digits_run()
    examples = read_rows(run.files.valid, (0, 1))[:20]
    lexicon = Lexicon({examples[0].source: ("1",)})
    cases = [
        Case("beam", [run.run], examples, {"beam_size": 3}),
        Case("ensemble", [run.run, run.run], examples),
        Case("lexicon", [run.run], examples, options=DecodingOptions(lexicon=lexicon)),
    ]
    records = [compare_case(case, num_lists=5, nbest=3) for case in cases]
    for record in records:
        assert (record["equal"], record["equal_lists"]) == (20, 5)
        for name in ("log_probability", "given", "attention", "runtime_error", "torch_error"):
            assert record[name] < MAX_DIFFERENCE, (record["kind"], name)
    assert [line.split(" | ")[1] for line in list(format_table(records))[2:]] == ["1", "1", "1"]
