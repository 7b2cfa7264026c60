"""Errors of an attention of another package after its check: one message that names class, package, file and line."""

from pathlib import Path

import pytest
import torch
from test_attention_check import BilinearAttention
from torch import Tensor
from trained_runs import make_small_config, train_to_end, write_digit_files

import pellucid
from pellucid.cli import main
from pellucid.config.attention_types import ATTENTION_TYPES
from pellucid.config.extension_errors import extension_error
from pellucid.config.settings import AttentionConfig
from pellucid.config.toml import override_settings
from pellucid.data.examples import Example
from pellucid.errors import ConfigError, DivergenceError, NotFiniteError

PLACE = rf"\({__file__}, line \d+\)"
MESSAGE = rf"the attention type 'fails' \(Fails\) failed: KeyError: 'size' {PLACE}; correct the class"


class Fails(BilinearAttention):
    """A class that fails for more than two sources at once."""

    max_sources = 2

    def scores(self, query: Tensor, keys: Tensor) -> Tensor:
        """Return the scores of at most two sources."""
        if len(keys) > self.max_sources:
            look_up({}, "size")
        return super().scores(query, keys)


def look_up(table: dict[str, int], key: str) -> int:
    """Return an entry of a table."""
    return table[key]


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Register the class."""
    monkeypatch.setattr(ATTENTION_TYPES, "registered", {"fails": Fails})
    monkeypatch.setattr(ATTENTION_TYPES, "packages", {})


def test_a_training_names_the_class_that_fails(tmp_path: Path) -> None:
    files = write_digit_files(tmp_path)
    config = override_settings(make_small_config({"epochs": 1}), {"attention": {"type": "fails"}})
    with pytest.raises(ConfigError, match=MESSAGE) as refusal:
        train_to_end(files, tmp_path / "run", config)
    assert isinstance(refusal.value.__cause__, KeyError)


def test_a_command_prints_one_message(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def predict(arguments: list[str]) -> int:
        """Compute scores, as the commands do in their processes."""
        Fails(AttentionConfig(size=3), 3, 2).scores(torch.zeros(1, 1, 3), torch.zeros(3, 4, 2))
        return 0

    monkeypatch.setattr("pellucid.cli._run_subcommand", predict)
    assert main(["predict"]) == 2
    error_text = capsys.readouterr().err
    assert error_text.startswith("pellucid: the attention type 'fails' (Fails) failed: KeyError: 'size' (")
    assert error_text.count("\n") == 1


def test_other_errors_are_not_those_of_the_class() -> None:
    for error in (ConfigError("wrong"), MemoryError(), ValueError("elsewhere")):
        try:
            raise error
        except Exception as caught:
            assert extension_error(caught) is None
    attention = Fails(AttentionConfig(size=3), 3, 2)
    try:
        attention.scores(torch.zeros(1, 1, 3), torch.zeros(3, 4, 2))
    except KeyError as caught:
        error_text = str(extension_error(caught))
        assert error_text.startswith("the attention type 'fails' (Fails) failed: KeyError: 'size' (")


class NotANumber(BilinearAttention):
    """A class whose scores are NaN for long sources; with a bound of 0, for more than two sources."""

    longest = 50

    def scores(self, query: Tensor, keys: Tensor) -> Tensor:
        """Return the scores, or NaN."""
        scores = super().scores(query, keys)
        return scores * torch.nan if keys.shape[1] > self.longest and (self.longest or len(keys) > 2) else scores


@pytest.mark.slow
def test_numbers_that_are_not_finite_may_be_those_of_the_class(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ATTENTION_TYPES.registered, "nan", NotANumber)
    files = write_digit_files(tmp_path)
    config = override_settings(make_small_config({"epochs": 1}), {"attention": {"type": "nan"}})
    note = r"the attention type 'nan' \(NotANumber\) computes them: check the class$"
    train_to_end(files, tmp_path / "run", config)
    model = pellucid.load(tmp_path / "run")
    with pytest.raises(NotFiniteError, match=f"its parameters are damaged, or too large.*; or {note}"):
        model.predict(["1" * 51])
    with pytest.raises(NotFiniteError, match=note):
        model.score_examples([Example("1" * 51, "1")])
    monkeypatch.setattr(NotANumber, "longest", 0)
    with pytest.raises(DivergenceError, match=rf"training\.learning_rate .* may help; or {note}"):
        train_to_end(files, tmp_path / "other", config)
