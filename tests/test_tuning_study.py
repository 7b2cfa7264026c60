"""A study of a search: it continues after any line of its journal, and refuses a damaged journal with its line.

test_tuning_processes.py has studies of several processes, test_tuning_database.py those in a database.
"""

import json
import warnings
from pathlib import Path

import pytest

from pellucid.errors import RunError

pytest.importorskip("optuna")

from pellucid.tuning.journal import JOURNAL
from pellucid.tuning.space import ChoiceDimension, RangeDimension, SearchSpace, Value, describe_space
from pellucid.tuning.storage import FolderStorage
from pellucid.tuning.study import EndedTrial, PruneDecision, Pruning, StudySettings, SuggestedTrial, TuningStudy

SPACE = SearchSpace(
    (
        RangeDimension("training.learning_rate", 0.001, 0.1, None, True),
        RangeDimension("encoder.dropout", 0.0, 0.5, None, False),
        ChoiceDimension("encoder.cell", ("gru", "lstm")),
        RangeDimension("encoder.num_layers", 1, 3, None, False),
    ),
    (),
)
NUM_VALIDATIONS = 4


def open_study(folder: Path, pruning: Pruning = "median", shared: bool = False) -> TuningStudy:
    """Open the study of a folder, as a search does."""
    settings = StudySettings(SPACE, "loss", 3, pruning, NUM_VALIDATIONS)
    study = TuningStudy(FolderStorage(folder, shared), settings)
    description = {"data": "0", "settings": {"seed": 3}, "space": describe_space(SPACE)}
    assert study.check_description(description) == []
    study.enqueue_first({"training.learning_rate": 0.01})
    return study


def simulated_loss(values: dict[str, Value], validation: int) -> float:
    """Return the loss of a simulated training, which depends on the values only."""
    rate, dropout = values["training.learning_rate"], values["encoder.dropout"]
    assert isinstance(rate, float) and isinstance(dropout, float)
    return abs(rate - 0.03) * 10 + dropout + 1 / validation


def run_trial(study: TuningStudy, suggested: SuggestedTrial) -> None:
    """Run a simulated trial to its end, from its first validation on."""
    state, reason, validation = "finished", "", 0
    for validation in range(1, NUM_VALIDATIONS + 1):
        decision = study.report(suggested.number, validation, simulated_loss(suggested.values, validation))
        if decision is not None:
            assert decision.validation == validation
            state, reason = "pruned", decision.reason
            break
    score = simulated_loss(suggested.values, validation)
    study.record_end(EndedTrial(suggested.number, state, score, reason, 1.0, suggested.values))  # type: ignore[arg-type]


def claim_trial(study: TuningStudy, trials: int = 99) -> SuggestedTrial | None:
    """Take a trial of a study, as a search does."""
    return study.claim_trial(trials, lambda number: False)


def run_search(folder: Path, pruning: Pruning, trials: int, shared: bool = False) -> list[EndedTrial]:
    """Run or resume a simulated search of one job, and return its trials."""
    study = open_study(folder, pruning, shared)
    while suggested := claim_trial(study, trials):
        run_trial(study, suggested)
    study.storage.close()
    return study.ended_trials()


@pytest.mark.slow
@pytest.mark.parametrize(("pruning", "shared"), [("median", False), ("halving", False), ("halving", True)])
def test_search_killed_after_any_line_continues_with_the_same_trials(
    tmp_path: Path, pruning: Pruning, shared: bool
) -> None:
    (tmp_path / "whole").mkdir()
    whole = run_search(tmp_path / "whole", pruning, 11, shared)
    assert {trial.state for trial in whole} == {"finished", "pruned"}
    lines = (tmp_path / "whole" / JOURNAL).read_bytes().splitlines(keepends=True)
    assert any(b"tpe:relative_params" in line for line in lines)  # the sampler has suggested, not only random trials
    for count in (*range(1, 40, 5), *range(len(lines) - 40, len(lines))):
        (tmp_path / str(count)).mkdir()
        (tmp_path / str(count) / JOURNAL).write_bytes(b"".join(lines[:count]) + lines[count][:9])
        assert run_search(tmp_path / str(count), pruning, 11, shared) == whole, f"killed after line {count}"


def test_values_of_a_trial_are_independent(tmp_path: Path) -> None:
    space = SearchSpace(tuple(RangeDimension(f"training.{name}", 0.0, 1.0, None, False) for name in "ab"), ())
    study = TuningStudy(FolderStorage(tmp_path), StudySettings(space, "loss", 3, "none", NUM_VALIDATIONS))
    for values in (study.ask().values for _ in range(5)):
        assert values["training.a"] != values["training.b"]


def test_recorded_decision_to_prune_is_kept(tmp_path: Path) -> None:
    study = open_study(tmp_path, "halving")
    for _ in range(8):
        suggested = study.ask()
        decisions = [
            study.report(suggested.number, validation, suggested.number + 1 / validation) for validation in (1, 2)
        ]
    assert decisions[0] == PruneDecision(1, "worse than the best third so far at validation 1")
    resumed = open_study(tmp_path, "none")
    assert [claim_trial(resumed) is not None for _ in range(8)] == [True] * 8
    assert [resumed.report(7, validation, 0.0) for validation in (1, 2)] == [decisions[0]] * 2
    assert resumed.report(0, 1, 9.0) is None  # the first trial was the best


@pytest.fixture(scope="module")
def journal(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """Return the journal of a simulated search."""
    folder = tmp_path_factory.mktemp("study")
    run_search(folder, "halving", 4)
    return (folder / JOURNAL).read_bytes()


def find_line(journal: bytes, text: str) -> int:
    """Return the index of the first line with a text."""
    return next(index for index, line in enumerate(journal.splitlines()) if text.encode() in line)


@pytest.mark.parametrize(
    ("text", "key", "value"),
    [
        ('"seconds"', "user_attr", {"seconds": {}}),
        ('"score"', "user_attr", {"score": "x"}),
        ('"prune"', "user_attr", {"prune": 3}),
        ('"op_code":5', "op_code", 99),
        ('"op_code":5', "param_name", None),
        ('"op_code":5', "param_name", "encoder.hidden_size"),
        ('"op_code":5', "param_value_internal", 7.0),
        ('"op_code":5', "param_value_internal", float("inf")),
        ('"op_code":5', "param_value_internal", float("nan")),
        pytest.param('"op_code":5', "param_value_internal", 10**400, id="long number"),
        ('"op_code":5', "distribution", "{}"),
        ('"op_code":5', "distribution", "[" * 20000),
        ('"op_code":5', "trial_id", 99),
        ('"param_name":"encoder.cell"', "param_value_internal", 5),
        ('"param_name":"encoder.cell"', "param_value_internal", -1),
        ('"param_name":"encoder.num_layers"', "param_value_internal", 1e300),
        ('"description"', "user_attr", {"description": 5}),
        ('"description"', "user_attr", {}),
        ('"description"', "study_id", 1),
        ('"fixed_params"', "system_attrs", {"fixed_params": {"encoder.cell": "rnn"}}),
        ('"fixed_params"', "system_attrs", {"fixed_params": [1]}),
        ('"fixed_params"', "user_attrs", {"retry_of": []}),
        ('"op_code":6', "values", [1, 2]),
        ('"op_code":6', "datetime_start", "yesterday"),
        ('"op_code":7', "step", "1"),
        ('"op_code":7', "intermediate_value", None),
        ('"op_code":0', "study_name", "other"),
        ('"op_code":0', "directions", [2]),
    ],
)
def test_damaged_journal_is_refused_with_its_line(
    journal: bytes, tmp_path: Path, text: str, key: str, value: object
) -> None:
    index = find_line(journal, text)
    lines = journal.splitlines()
    lines[index] = json.dumps({**json.loads(lines[index]), key: value}, separators=(",", ":")).encode()
    content = b"\n".join([*lines, b""])
    (tmp_path / JOURNAL).write_bytes(content)
    with pytest.raises(RunError) as caught:
        open_study(tmp_path, "halving")
    assert str(caught.value).startswith(f"{tmp_path / JOURNAL}:{index + 1}: the line is damaged, ")
    assert (tmp_path / JOURNAL).read_bytes() == content


@pytest.mark.parametrize(
    "line", ["my notes", "", "[" * 20000, "[]", "5", '{"op_code":0', '{"op_code":4}', '{"op_code":2,"op_code":2}']
)
def test_line_that_is_no_operation_is_refused(journal: bytes, tmp_path: Path, line: str) -> None:
    lines = journal.decode().splitlines()
    for index in (0, 1, len(lines)):
        content = "\n".join([*lines[:index], line, *lines[index:], ""])
        (tmp_path / JOURNAL).write_text(content)
        with pytest.raises(RunError, match=rf"study\.journal:{index + 1}: the line is damaged"):
            open_study(tmp_path, "halving")
        assert (tmp_path / JOURNAL).read_text() == content


def test_a_long_line_is_refused_before_it_is_parsed(journal: bytes, tmp_path: Path) -> None:
    """Python needs 24 bytes for each byte of such a list, and msgspec skips an unknown key."""
    lines = journal.splitlines(keepends=True)
    lines[2] = lines[2].rstrip(b"\n}") + b',"x":[' + b"[]," * 2**19 + b"[]]}\n"
    (tmp_path / JOURNAL).write_bytes(b"".join(lines))
    with pytest.raises(RunError, match=r"study\.journal:3: the line is damaged.*: it has more than 1,048,576 bytes"):
        open_study(tmp_path, "halving")


def test_journal_with_another_last_line_is_not_cut(tmp_path: Path) -> None:
    (tmp_path / JOURNAL).write_text("my notes")
    with pytest.raises(RunError, match=r"study\.journal:1: the line is damaged"):
        open_study(tmp_path)
    assert (tmp_path / JOURNAL).read_text() == "my notes"


def test_every_removed_line_is_refused_or_accepted_without_another_error(journal: bytes, tmp_path: Path) -> None:
    lines = journal.splitlines(keepends=True)
    num_refused = 0
    for index in range(len(lines)):
        (tmp_path / JOURNAL).write_bytes(b"".join(lines[:index] + lines[index + 1 :]))
        try:
            run_search(tmp_path, "halving", 5)
        except RunError as error:
            num_refused += 1
            assert JOURNAL in str(error)
    assert num_refused > 4


def test_error_of_optuna_after_loading_names_the_journal(journal: bytes, tmp_path: Path) -> None:
    (tmp_path / JOURNAL).write_bytes(journal)
    study = open_study(tmp_path, "halving")
    study.ask()
    with (tmp_path / JOURNAL).open("ab") as file:
        file.write(b"[]\n")
    with pytest.raises(RunError, match=r"study\.journal is damaged"):
        study.report(4, 1, 1.0)


def test_equal_scores_give_no_importance_and_no_warning(tmp_path: Path) -> None:
    study = open_study(tmp_path, "none")
    for _ in range(8):
        suggested = study.ask()
        study.record_end(EndedTrial(suggested.number, "finished", 0.0, "", 1.0, suggested.values))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert study.importances() == {}
    for score in (-1.0, -2.0, -3.0):
        suggested = study.ask()
        study.record_end(EndedTrial(suggested.number, "finished", score, "", 1.0, suggested.values))
    assert sum(study.importances().values()) == pytest.approx(1.0)


def test_small_choices_are_not_rounded(tmp_path: Path) -> None:
    """Values of a range have ten decimals; a choice is stored, used and reported as the user gave it."""
    space = SearchSpace((ChoiceDimension("training.weight_decay", (1.5e-12, 2.5e-12)),), ())
    study = TuningStudy(FolderStorage(tmp_path), StudySettings(space, "loss", 3, "none", NUM_VALIDATIONS))
    assert study.check_description({"data": "0", "settings": {}, "space": describe_space(space)}) == []
    suggested = study.ask()
    assert suggested.values["training.weight_decay"] in (1.5e-12, 2.5e-12)
    assert study.trial_values(suggested.number) == suggested.values
