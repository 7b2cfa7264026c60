"""Estimators of scikit-learn: its conventions, pipelines, cross-validation, and how a fitted model travels.

`check_estimator` fits on numbers, which these estimators do not accept, so most of its checks cannot apply: those of
data validation (shapes, sparse matrices, missing numbers, data types, feature names and counts), of results that depend
on numbers, and of regressors, transformers and clusterers. The checks of parameters, tags, cloning and representation
apply, and run here.
"""

import copy
import pickle
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pellucid
from pellucid.errors import ArgumentError, ConfigError, DataError

pytest.importorskip("sklearn")

from command_line import build_environment
from sklearn.base import clone, is_classifier
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, KFold, cross_val_predict, cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils import estimator_checks
from trained_runs import SMALL_SIZES, make_copy_examples

from pellucid.sklearn import SequenceClassifier, SequenceTagger, SequenceTransducer

EXAMPLES = make_copy_examples(60, seed=1)
X, Y = [example.source for example in EXAMPLES], [example.target for example in EXAMPLES]
SETTINGS: dict[str, Any] = {**SMALL_SIZES, "training": {"batch_size": 8, "pair_ngram": False}}
ESTIMATORS = [SequenceTransducer, SequenceTagger, SequenceClassifier]
CHECKS = [
    estimator_checks.check_no_attributes_set_in_init,
    estimator_checks.check_parameters_default_constructible,
    estimator_checks.check_get_params_invariance,
    estimator_checks.check_set_params,
    estimator_checks.check_estimator_cloneable,
    estimator_checks.check_estimator_repr,
    estimator_checks.check_estimator_tags_renamed,
    estimator_checks.check_valid_tag_types,
    estimator_checks.check_mixin_order,
]


def small(**parameters: Any) -> SequenceTransducer:  # noqa: ANN401
    return SequenceTransducer(**{"size": "tiny", "epochs": 1, "settings": SETTINGS, **parameters})


def test_the_random_state_is_a_seed_or_a_generator_or_none() -> None:
    """Regression test: only whole numbers were accepted."""
    seeds = [SequenceTransducer(random_state=np.random.RandomState(5))._all_settings(False)["seed"] for _ in range(2)]
    assert (
        seeds[0] == seeds[1] != SequenceTransducer(random_state=np.random.RandomState(6))._all_settings(False)["seed"]
    )
    np.random.seed(3)
    drawn = {SequenceTransducer(random_state=None)._all_settings(False)["seed"] for _ in range(3)}
    assert len(drawn) == 3 and SequenceTransducer()._all_settings(False)["seed"] == 1


def test_epochs_are_given_once() -> None:
    """Regression test: the epochs of the settings were silently replaced."""
    with pytest.raises(ArgumentError, match=r"epochs: the settings have training\.epochs, too"):
        small(settings={"training": {"epochs": 3}}).fit(X, Y)


@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_checks_of_scikit_learn_that_apply(check: Any, estimator: Any) -> None:  # noqa: ANN401
    check(estimator.__name__, estimator())


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_values_of_parameters_are_checked_by_fit_alone(estimator: Any) -> None:  # noqa: ANN401
    """This check passes wrong types, which the check of annotations of the other tests refuses; so it runs alone."""
    program = (
        f"from pellucid.sklearn import {estimator.__name__} as estimator; "
        "from sklearn.utils.estimator_checks import check_do_not_raise_errors_in_init_or_set_params as check; "
        "check('estimator', estimator())"
    )
    process = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env=build_environment(), check=False
    )
    assert process.returncode == 0, process.stderr


def test_an_estimator_equals_a_training_of_the_same_pairs(tmp_path: Path) -> None:
    fitted = small(random_state=3).fit(np.array(X), Y)
    settings = {**SETTINGS, "size": "tiny", "seed": 3, "training": {**SETTINGS["training"], "epochs": 1}}
    model = pellucid.train(list(zip(X, Y, strict=True)), None, tmp_path / "run", settings, progress=False)
    outputs = [trace.output for trace in model.predict(X)]
    assert fitted.predict(X).tolist() == outputs and fitted.predict(X).dtype == object
    assert fitted.score(X, outputs) == 1.0 and 0 <= fitted.score(X, Y) < 1
    fitted.save(tmp_path / "saved")
    assert [trace.output for trace in pellucid.load(tmp_path / "saved").predict(X)] == outputs
    other = small(random_state=3, run=tmp_path / "kept").fit(X, Y)
    assert other.predict(X).tolist() == outputs and (tmp_path / "kept" / "log.jsonl").exists()


def test_a_fitted_estimator_is_cloned_without_and_copied_with_its_model() -> None:
    fitted = small().fit(X, Y)
    assert not hasattr(clone(fitted), "model_") and clone(fitted).get_params() == fitted.get_params()
    for other in (copy.deepcopy(fitted), pickle.loads(pickle.dumps(fitted))):  # joblib pickles estimators
        assert other.predict(X).tolist() == fitted.predict(X).tolist()
        assert other.get_params() == fitted.get_params()
    unfitted = pickle.loads(pickle.dumps(small()))
    with pytest.raises(NotFittedError):
        unfitted.predict(X)


def epochs_of_model(estimator: SequenceTransducer, sources: Sequence[str], targets: Sequence[str]) -> float:
    """Return the number of epochs of a fitted model, as the score of a grid search."""
    assert len(sources) == len(targets) == len(X) // 2
    return float(estimator.model_.config.training.epochs)


def test_pipelines_cross_validation_and_grid_search() -> None:
    lower = FunctionTransformer(lambda texts: [text.lower() for text in texts])
    pipeline = make_pipeline(lower, small())
    result = cross_validate(pipeline, [text.upper() for text in X], Y, cv=KFold(3), return_estimator=True)
    assert result["test_score"].shape == (3,) and len(result["estimator"][0].predict(["AB"])) == 1
    assert len(cross_val_predict(small(), X, Y, cv=2)) == len(X)
    search = GridSearchCV(small(), {"epochs": [1, 2, 1.5]}, cv=2, scoring=epochs_of_model).fit(X, Y)
    assert search.cv_results_["mean_test_score"].tolist() == [1, 2, 1.5]  # each candidate is trained as the grid says
    assert search.best_params_ == {"epochs": 2} and search.best_estimator_.model_.config.training.epochs == 2
    assert len(search.predict(["ab"])) == 1


def test_estimators_run_in_processes_of_joblib() -> None:
    alone = cross_validate(small(), X, Y, cv=2)["test_score"]
    result = cross_validate(small(), X, Y, cv=2, n_jobs=2, return_estimator=True)
    assert result["test_score"].tolist() == alone.tolist() and len(result["estimator"][1].predict(X)) == len(X)


def test_frames_features_tags_and_classes() -> None:
    letters = "abcdefghijklmnopqrstuvwxyz"
    rows = [(letter, "N") for letter in letters]
    with_features = small().fit(rows, list(letters))
    assert with_features.model_.config.data.features_column == "3" and len(with_features.predict(rows)) == 26
    tagger = SequenceTagger(size="tiny", epochs=1, settings=SETTINGS)
    tagger.set_params(settings={**SETTINGS, "data": {"target_symbols": "words"}})
    tagger.fit([f"{letter}b" for letter in letters], ["N V"] * 13 + ["V N"] * 13)
    tags = tagger.predict(["ab", "zb"]).tolist()
    assert tagger.score(["ab", "zb"], tags) == 1.0
    first, *rest = tags[0].split()
    assert tagger.score(["ab", "zb"], [" ".join([first + "x", *rest]), tags[1]]) == 0.75
    classifier = SequenceClassifier(size="tiny", epochs=30, settings=SETTINGS)
    classifier.fit(X, [int("a" in text) for text in X])
    assert is_classifier(classifier) and classifier.classes_.tolist() == [0, 1]
    predicted = classifier.predict(X)
    assert predicted.dtype.kind == "i" and classifier.score(X, predicted) == 1.0
    assert not is_classifier(tagger)


def test_a_score_of_ignored_tags_alone_is_refused() -> None:
    """Regression test: it was a `ZeroDivisionError`."""
    tagger = SequenceTagger(size="tiny", epochs=1, settings={**SETTINGS, "data": {"ignored_tag": "-"}}).fit(X, X)
    with pytest.raises(ArgumentError, match=r"y: expected at least one tag that is not data\.ignored_tag, got none"):
        tagger.score(["ab"], ["--"])
    assert 0 <= tagger.score(["ab"], ["-b"]) <= 1


def test_classes_are_compared_in_the_normal_form_of_the_targets() -> None:
    """Regression test: the output is normalized, and a class that is not was no key."""
    composed, decomposed = "\u00e9", "e\u0301"
    settings = {**SETTINGS, "data": {"target_normalization": "nfc"}}
    classifier = SequenceClassifier(size="tiny", epochs=1, settings=settings)
    classifier.fit(X, [decomposed if "a" in text else "o" for text in X])
    assert {*classifier.predict(X)} <= {decomposed, "o"} and classifier.score(X, classifier.predict(X)) == 1.0
    with pytest.raises(ArgumentError, match="y: two classes have the same text"):
        classifier.fit(X, [decomposed if "a" in text else composed for text in X])


def test_classes_that_are_numbers_of_several_types_are_those_of_their_array() -> None:
    """Regression test: the class 1.0 was trained as "1", and its prediction failed with a `KeyError`."""
    classifier = SequenceClassifier(size="tiny", epochs=1, settings=SETTINGS)
    classifier.fit(X, [1 if "a" in text else 2.5 for text in X])
    predicted = classifier.predict(X)
    assert classifier.classes_.tolist() == [1.0, 2.5] and {*predicted} <= {1.0, 2.5}
    assert classifier.score(X, [int(each) if each == 1 else float(each) for each in predicted]) == 1.0


def test_empty_sources_and_no_rows() -> None:
    classifier = SequenceClassifier(size="tiny", epochs=1, settings=SETTINGS).fit(X, [int("a" in text) for text in X])
    for call in (classifier.predict, lambda sources: classifier.score(sources, [0, 1])):
        with pytest.raises(ArgumentError, match="X: row 2 has an empty source, which has no class: leave it out"):
            call(["ab", ""])
    assert small().fit(X, Y).predict([""]).tolist() == [""]
    with pytest.raises(ArgumentError, match="X, y: expected at least one row, got none"):
        classifier.score([], [])


def test_frames_of_pandas_and_polars() -> None:
    expected = small().fit(X, Y).predict(X).tolist()
    for name in ("pandas", "polars"):
        package = pytest.importorskip(name)
        frame = package.DataFrame({"word": X, "copy": Y})
        assert small().fit(frame["word"], frame["copy"]).predict(frame[["word"]]).tolist() == expected


def test_wrong_data_and_parameters_are_errors() -> None:
    for error, x, y, message in (
        (ArgumentError, X, Y[1:], "expected equal numbers of rows, got 60 and 59"),
        (ArgumentError, "abc", Y, "expected a list, an array or a column of texts, got 'abc'"),
        (ArgumentError, [("a", "b", "c")], ["a"], "expected texts, or rows of a source and features"),
        (ArgumentError, X, None, "requires y to be passed"),
        (DataError, [5, *X[1:]], Y, "pair 1 of the training list of pairs: the value of the source is 5, not a string"),
        (DataError, X, [None, *Y[1:]], "pair 1 of the training list of pairs: the value of the target is None"),
    ):
        with pytest.raises(error, match=message):
            small().fit(x, y)
    wrong: list[dict[str, Any]] = [{"size": "huge"}, {"epochs": -1}, {"settings": {"x": {}}}, {"settings": {"data": 5}}]
    for parameters in wrong:
        with pytest.raises(ConfigError):
            small(**parameters).fit(X, Y)
    with pytest.raises(ArgumentError, match=r"source: expected a string, got 5"):
        small().fit(X, Y).predict([5])


def test_a_fit_that_fails_leaves_the_former_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression test: the classes were those of the new fit, and the model the former one."""
    estimator = SequenceClassifier(size="tiny", epochs=1).fit(["a", "b"] * 5, ["x", "y"] * 5)
    monkeypatch.setattr("pellucid.sklearn.train", lambda *arguments, **options: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        estimator.fit(["a", "b"] * 5, ["new", "other"] * 5)
    assert list(estimator.classes_) == ["x", "y"] and set(estimator.predict(["a", "b"])) <= {"x", "y"}


@pytest.mark.parametrize("missing", [None, float("nan")])
def test_a_missing_class_is_an_error_of_the_data(missing: object) -> None:
    """Regression test: it was a TypeError of NumPy, or a class."""
    with pytest.raises(DataError, match="y: row 2 has no class"):
        SequenceClassifier(size="tiny", epochs=1).fit(["a", "b", "c"], ["x", missing, "y"])
    with pytest.raises(DataError, match="y: the classes cannot be sorted"):
        SequenceClassifier(size="tiny", epochs=1).fit(["a", "b"], [object(), object()])
