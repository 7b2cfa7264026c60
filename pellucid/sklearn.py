"""Estimators that follow the conventions of scikit-learn; they need scikit-learn (`pip install 'pellucid[sklearn]'`).

`SequenceTransducer`, `SequenceTagger` and `SequenceClassifier` have `fit`, `predict`, `score`, `get_params` and
`set_params`, and work with `clone`, pipelines, `cross_validate` and `GridSearchCV`.

A fitted estimator pickles as its parameters and the bytes of a model folder (`pellucid.save`), so that joblib can send
it to other processes. Untrusted pickles are unsafe: share `estimator.save(folder)`, which writes no pickle.
"""

import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from pellucid.api import train
from pellucid.argument_checks import convert_argument
from pellucid.config.settings import TaskName
from pellucid.config.toml import build_config
from pellucid.data.examples import Example
from pellucid.data.tokenizers import build_tokenizers
from pellucid.decoding.predictor import Predictor
from pellucid.error_messages import describe_value
from pellucid.errors import ArgumentError, ConfigError, DataError, abbreviate_reason
from pellucid.evaluation.assessment import score_traces
from pellucid.evaluation.metrics import ScoredExample
from pellucid.run_folder.predictor_loader import load
from pellucid.run_folder.predictor_saver import save
from pellucid.tasks import classify, tag, transduce

try:
    from sklearn.base import BaseEstimator, ClassifierMixin
    from sklearn.utils import check_random_state
    from sklearn.utils.validation import check_is_fitted
except ImportError as error:
    raise ImportError("pellucid.sklearn needs scikit-learn: pip install 'pellucid[sklearn]'") from error

EstimatorT = TypeVar("EstimatorT", bound="_SequenceEstimator")

MODEL_FILES = "_model_files"
"""Key of the files of the model in the state of a pickled estimator."""


class _SequenceEstimator(BaseEstimator):  # type: ignore[misc]
    """Parameters, training, and storage of the estimators of all tasks.

    `X` holds texts: a list, a NumPy array, or a column or table of pandas or polars with one column, or with two, the
    second of which holds features. A tenth of the sources of `X` is held out and selects the best parameters.

    Attributes:
        model_: The fitted predictor, with attention weights and all other methods of `pellucid.Predictor`.
    """

    _task: TaskName

    def __init__(
        self,
        size: str | None = None,
        epochs: int | float | None = None,
        settings: Mapping[str, Any] | None = None,
        random_state: int | np.random.RandomState | None = 1,
        run: str | Path | None = None,
        verbose: bool = False,
    ) -> None:
        """Store the parameters; they are checked by `fit`.

        Args:
            size: Size preset: "tiny", "small", "base" or "large". None chooses by the number of pairs.
            epochs: Number of epochs (`training.epochs`). None derives it from the number of pairs.
            settings: Further settings, nested as in a TOML file: {"data": {"target_symbols": "words"}}.
            random_state: Random seed (`seed`), a whole number. From a `RandomState` of NumPy, and for None from NumPy's
                own one, `fit` draws a seed, so that it cannot resume from `run`.
            run: Run folder, which is kept, and from which an interrupted `fit` resumes. It serves one data set, so it
                is None in cross-validation: then the run is written to a temporary folder and removed.
            verbose: Print the progress of the training on standard error.
        """
        self.size = size
        self.epochs = epochs
        self.settings = settings
        self.random_state = random_state
        self.run = run
        self.verbose = verbose

    def fit(self: EstimatorT, X: Any, y: Any) -> EstimatorT:  # noqa: ANN401, N803 (names and types of scikit-learn)
        """Train a model.

        Args:
            X: Source texts, or rows of a source and features.
            y: Targets, one for each source.

        Returns:
            The estimator.

        Raises:
            ArgumentError: The numbers of sources and targets differ, or `X` has more than two columns.
            DataError: A source or a target is no text, or is empty.
            ConfigError: A parameter or a setting is invalid.
            RunError: The run folder holds a run with other settings or data.
        """
        if y is None:
            raise ArgumentError("y: expected target texts, got None: this estimator requires y to be passed")
        rows = _source_rows(X)
        settings = self._all_settings(has_features=bool(rows) and len(rows[0]) > 1)
        given = _to_list(y)
        targets = self._target_texts(given, settings)
        if len(rows) != len(targets):
            raise ArgumentError(f"X, y: expected equal numbers of rows, got {len(rows):,} and {len(targets):,}")
        pairs = [(row[0], target, *row[1:]) for row, target in zip(rows, targets, strict=True)]
        with tempfile.TemporaryDirectory(prefix="pellucid-") as folder:
            run = Path(folder) / "run" if self.run is None else self.run
            self._store_fit(train(pairs, None, run, settings, progress=self.verbose), given)
        return self

    def predict(self, X: Any) -> np.ndarray:  # noqa: ANN401, N803
        """Return the best output of each source, such as a sequence or tags, as an array of texts.

        Args:
            X: Source texts, or rows of a source and features.

        Raises:
            NotFittedError: The estimator is not fitted.
            ArgumentError: A source is no text.
        """
        outputs = [trace.output for trace in self._model().predict_examples(_examples(_source_rows(X)))]
        return np.array(outputs, dtype=object)

    def save(self, folder: str | Path) -> None:
        """Write the model to a new folder, which `pellucid.load` and the command line read (`pellucid.save`).

        Args:
            folder: The folder, which must be missing or empty.

        Raises:
            NotFittedError: The estimator is not fitted.
            RunError: The folder is not empty or cannot be written.
        """
        save(self._model(), folder)

    def __sklearn_tags__(self) -> Any:  # noqa: ANN401
        """Return the tags of scikit-learn: the input is text in one dimension, and fitting needs targets."""
        tags = super().__sklearn_tags__()
        tags.input_tags.string, tags.input_tags.one_d_array, tags.input_tags.two_d_array = True, True, False
        tags.target_tags.required, tags.no_validation = True, True
        return tags

    def __sklearn_is_fitted__(self) -> bool:
        """Return whether `fit` has trained a model."""
        return hasattr(self, "model_")

    def __getstate__(self) -> dict[str, Any]:
        """Return the parameters and the files of the model."""
        state = dict(super().__getstate__())
        model: Predictor | None = state.pop("model_", None)
        if model is not None:
            with tempfile.TemporaryDirectory(prefix="pellucid-") as folder:
                save(model, folder)
                state[MODEL_FILES] = {path.name: path.read_bytes() for path in sorted(Path(folder).iterdir())}
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Restore the parameters, and load the model from its files."""
        files: Mapping[str, bytes] | None = state.get(MODEL_FILES)
        super().__setstate__({key: value for key, value in state.items() if key != MODEL_FILES})
        if files is not None:
            with tempfile.TemporaryDirectory(prefix="pellucid-") as folder:
                for name, content in files.items():
                    (Path(folder) / Path(name).name).write_bytes(content)
                self.model_ = load(folder)

    def _model(self) -> Predictor:
        """Return the fitted model."""
        check_is_fitted(self)
        return self.model_

    def _score_outputs(self, sources: Any, targets: Any) -> list[ScoredExample]:  # noqa: ANN401
        """Return the best output of each source compared with its target, as `pellucid evaluate` compares them."""
        model, rows, items = self._model(), _source_rows(sources), _to_list(targets)
        _check_lengths(rows, items)
        return score_traces(model.predict_examples(_examples(rows)), [(target,) for target in items], model.tokenizers)

    def _target_texts(self, targets: list[Any], settings: Mapping[str, Any]) -> list[Any]:
        """Return the texts of the targets, on which the model is trained: by default the targets themselves.

        Args:
            targets: Targets as they are given.
            settings: Settings of the training.
        """
        return targets

    def _store_fit(self, model: Predictor, targets: list[Any]) -> None:
        """Store what a training has fitted, once it has ended.

        Args:
            model: Trained model.
            targets: Targets as they are given.
        """
        self.model_ = model

    def _seed(self) -> object:
        """Return the random seed; one that is no whole number is reported by the check of the settings."""
        if self.random_state is None or isinstance(self.random_state, np.random.RandomState):
            return int(check_random_state(self.random_state).randint(2**31))
        return self.random_state

    def _all_settings(self, has_features: bool) -> dict[str, Any]:
        """Return the settings of the training."""
        given: Mapping[str, Any] | None = convert_argument("settings", self.settings, Mapping[str, Any] | None)
        settings: dict[str, Any] = {"task": self._task, **(given or {}), "seed": self._seed()}
        if self.size is not None:
            settings["size"] = self.size
        training = settings.get("training")
        if self.epochs is not None and isinstance(training, Mapping) and "epochs" in training:
            raise ArgumentError("epochs: the settings have training.epochs, too: give one of them")
        columns = {"source_column": "1", "target_column": "2", "features_column": "3" if has_features else ""}
        sections: dict[str, dict[str, Any]] = {
            "data": columns,
            "training": {} if self.epochs is None else {"epochs": self.epochs},
        }
        for name, values in sections.items():
            section = settings.get(name, {})
            if isinstance(section, Mapping):  # the check of the settings reports others
                settings[name] = {**section, **values}
        if not has_features and isinstance(settings["data"], Mapping) and settings["data"].get("context_words"):
            raise ConfigError(
                "data.context_words: rows of X have no order: give the words around each source as second column of X"
            )
        return settings


class SequenceTransducer(_SequenceEstimator):
    """Model from sequences to sequences (task = "transduce").

    `X` holds texts: a list, a NumPy array, or a column or table of pandas or polars with one column, or with two, the
    second of which holds features. `y` holds the target texts. A tenth of the sources of `X` is held out and selects
    the best parameters.

    Attributes:
        model_: The fitted predictor, with attention weights and all other methods of `pellucid.Predictor`.
    """

    _task: TaskName = transduce.TASK.settings.name

    def score(self, X: Any, y: Any) -> float:  # noqa: ANN401, N803
        """Return the share of outputs that equal their targets, from 0 to 1.

        Args:
            X: Source texts, or rows of a source and features.
            y: Target texts.

        Raises:
            NotFittedError: The estimator is not fitted.
            ArgumentError: The numbers of sources and targets differ, or there is none.
        """
        return float(np.mean([scored.exact for scored in self._score_outputs(X, y)]))


class SequenceTagger(_SequenceEstimator):
    """Model that gives a tag to each symbol of a source (task = "tag"); `y` holds texts with one tag per symbol.

    Attributes:
        model_: The fitted predictor.
    """

    _task: TaskName = tag.TASK.settings.name

    def score(self, X: Any, y: Any) -> float:  # noqa: ANN401, N803
        """Return the share of correct tags, from 0 to 1.

        Args:
            X: Source texts, or rows of a source and features.
            y: Texts of tags.

        Raises:
            NotFittedError: The estimator is not fitted.
            ArgumentError: The numbers of sources and targets differ, or there is none, or no tag that counts.
        """
        scored = self._score_outputs(X, y)
        num_tags = sum(len(each.references[0]) for each in scored)
        if not num_tags:
            raise ArgumentError("y: expected at least one tag that is not data.ignored_tag, got none")
        pairs = [pair for each in scored for pair in zip(each.output, each.references[0], strict=False)]
        return sum(output == reference for output, reference in pairs) / num_tags


class SequenceClassifier(ClassifierMixin, _SequenceEstimator):  # type: ignore[misc]
    """Model that gives a class to each source (task = "classify"); `y` holds the classes, texts or other values.

    Attributes:
        model_: The fitted predictor.
        classes_: The classes, sorted.
    """

    _task: TaskName = classify.TASK.settings.name

    def predict(self, X: Any) -> np.ndarray:  # noqa: ANN401, N803
        """Return the class of each source.

        Args:
            X: Source texts, or rows of a source and features.

        Raises:
            NotFittedError: The estimator is not fitted.
            ArgumentError: A source is no text, or is empty.
        """
        model = self._model()  # an estimator that is not fitted has no classes
        self._check_sources(X)
        normalize = model.tokenizers.target.normalize
        indices = {normalize(str(label)): index for index, label in enumerate(self.classes_)}
        return np.asarray(self.classes_)[[indices[output] for output in super().predict(X)]]

    def score(self, X: Any, y: Any) -> float:  # noqa: ANN401, N803
        """Return the share of correct classes (accuracy), from 0 to 1.

        Args:
            X: Source texts, or rows of a source and features.
            y: Classes.

        Raises:
            NotFittedError: The estimator is not fitted.
            ArgumentError: The numbers of sources and classes differ, or there is none; or a source is empty.
        """
        self._model()
        self._check_sources(X)
        texts = {label: str(label) for label in self.classes_}  # 1 and 1.0 are one class
        scored = self._score_outputs(X, [texts.get(label, str(label)) for label in _to_list(y)])
        return float(np.mean([each.exact for each in scored]))

    def _target_texts(self, targets: list[Any], settings: Mapping[str, Any]) -> list[str]:
        """Return the classes of the targets as texts."""
        classes, numbers = _sorted_classes(targets)
        normalize = build_tokenizers(build_config(settings, "config").data).target.normalize
        if len({normalize(str(label)) for label in classes}) < len(classes):
            raise ArgumentError("y: two classes have the same text")
        return [str(classes[number]) for number in numbers]

    def _store_fit(self, model: Predictor, targets: list[Any]) -> None:
        """Store the model and the classes."""
        super()._store_fit(model, targets)
        self.classes_, _ = _sorted_classes(targets)

    def _check_sources(self, sources: Any) -> None:  # noqa: ANN401
        """Raise `ArgumentError` for a source without symbols, which has no class."""
        count = self._model().tokenizers.source.count
        for number, (source, *_) in enumerate(_source_rows(sources), 1):
            if isinstance(source, str) and not count(source):
                raise ArgumentError(f"X: row {number:,} has an empty source, which has no class: leave it out")


def _sorted_classes(targets: list[Any]) -> tuple[np.ndarray, np.ndarray]:
    """Return the different classes, sorted, and the number of each target among them; `DataError` for a missing one."""
    for row, label in enumerate(targets, 1):
        if label is None or (isinstance(label, float) and label != label) or type(label).__name__ == "NAType":
            raise DataError(f"y: row {row:,} has no class ({label}): leave it out")
    try:
        classes, numbers = np.unique(np.array(targets), return_inverse=True)
    except (TypeError, ValueError) as error:
        raise DataError(f"y: the classes cannot be sorted: {abbreviate_reason(error)}") from error
    return classes, numbers


def _to_list(values: Any) -> list[Any]:  # noqa: ANN401
    """Return a list, an array, or a column or table of a data frame as a list of its rows."""
    if hasattr(values, "to_numpy"):
        values = values.to_numpy()
    if isinstance(values, np.ndarray):
        if values.ndim == 2 and values.shape[1] == 1:
            values = values[:, 0]
        return list(values.tolist())
    if isinstance(values, str) or not isinstance(values, Iterable):
        raise ArgumentError(f"X, y: expected a list, an array or a column of texts, got {describe_value(values)}")
    return list(values)


def _source_rows(values: Any) -> list[tuple[Any, ...]]:  # noqa: ANN401
    """Return the source, or source and features, of each row."""
    rows = [(item,) if isinstance(item, str) or not _is_row(item) else tuple(item) for item in _to_list(values)]
    if rows and (len(rows[0]) not in (1, 2) or any(len(row) != len(rows[0]) for row in rows)):
        raise ArgumentError("X: expected texts, or rows of a source and features, got rows of other lengths")
    return rows


def _is_row(item: object) -> bool:
    """Return whether an item of `X` is a row of several values."""
    return isinstance(item, list | tuple | np.ndarray)


def _examples(rows: Sequence[tuple[Any, ...]]) -> list[Example]:
    """Return rows as examples without targets, which the model checks."""
    return [Example(row[0], "", *row[1:]) for row in rows]


def _check_lengths(rows: Sequence[object], targets: Sequence[object]) -> None:
    """Raise `ArgumentError` unless there is one target for each row, and at least one."""
    if not rows and not targets:
        raise ArgumentError("X, y: expected at least one row, got none")
    if len(rows) != len(targets):
        raise ArgumentError(f"X, y: expected equal numbers of rows, got {len(rows):,} and {len(targets):,}")
