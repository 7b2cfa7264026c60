"""Shared folders: their files, their model card, loading with checks, and what is refused."""

import ast
import json
import os
import re
import shlex
import shutil
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from command_line import run_pellucid, usage_error_message
from huggingface_hub import ModelCard
from shared_models import CARD, copies_with_pair_ngram, ensemble_of_copies, file_names, outputs
from task_cases import task_run
from test_runtime_loader import run_blocked, run_command
from trained_runs import (
    copy_run_folder,
    copy_task_run,
    digits_run,
    make_small_config,
    train_to_end,
    write_copy_files,
    write_pairs,
)

import pellucid
from pellucid.config.settings import TaskName
from pellucid.config.toml import override_settings
from pellucid.data.examples import Example, read_examples
from pellucid.errors import ArgumentError, ConfigError, InputError, RunError
from pellucid.files import digest_file
from pellucid.run_folder.initialization import check_training_folder
from pellucid.run_folder.run_files import load_run_config
from pellucid.runtime.loader import load as load_runtime
from pellucid.sharing.hub_card import CardContents, build_hub_card
from pellucid.sharing.manifest import (
    MANIFEST,
    REQUIRED_FILES,
    Manifest,
    ScoreFact,
    SharedFile,
    TrainingFacts,
    check_files,
    check_repository_names,
    read_manifest,
)
from pellucid.sharing.shared_folder import shared_config
from pellucid.training.events import FileSaved
from pellucid.training.session import train_run
from pellucid.training.training_data import TrainingFiles

MODEL_FILES = ["confidence.json", "config.toml", "model.safetensors", "pair_ngram.safetensors", "vocabulary.json"]


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder: Path = tmp_path_factory.mktemp("shared") / "copies"
    pellucid.load(copies_with_pair_ngram()).save_pretrained(folder, CARD)
    return folder


def read_header(folder: Path) -> dict[str, Any]:
    card = ModelCard.load(folder / "README.md")
    header: dict[str, Any] = card.data.to_dict()
    return header


def change_manifest(folder: Path, changes: dict[str, Any]) -> None:
    path = folder / MANIFEST
    path.write_text(json.dumps({**json.loads(path.read_text("utf-8")), **changes}), "utf-8")


def test_a_saved_folder_holds_what_prediction_needs_and_gives_the_same_outputs(shared: Path) -> None:
    assert file_names(shared) == sorted([*MODEL_FILES, "README.md", "attention.png", "manifest.json"])
    model = pellucid.load(copies_with_pair_ngram())
    assert model.pair_ngram_weight > 0 and model.confidence is not None
    for loaded in (pellucid.from_pretrained(shared), pellucid.load(str(shared))):
        assert outputs(loaded) == outputs(model) and loaded.no_confidence_reason() == ""
    assert outputs(load_runtime(shared)) == outputs(load_runtime(copies_with_pair_ngram()))


def test_no_path_and_no_example_of_the_training_is_shared(shared: Path, tmp_path: Path) -> None:
    for path in shared.rglob("*"):
        if path.is_file():
            assert str(copies_with_pair_ngram().parent).encode() not in path.read_bytes()
    pellucid.load(copies_with_pair_ngram()).save_pretrained(tmp_path / "plain")
    assert not (tmp_path / "plain" / "attention.png").exists()
    card = (tmp_path / "plain" / "README.md").read_text("utf-8")
    assert "## Example" not in card and "names no license" in card


def test_only_the_names_of_files_of_the_training_are_shared() -> None:
    config = load_run_config(copies_with_pair_ngram())
    changed = override_settings(config, {"encoder": {"pretrained": "/home/me/vectors.txt"}})
    config = shared_config(changed, None, True)
    assert config.encoder.pretrained == "vectors.txt" and config.decoder.pretrained == ""
    assert config.search == changed.search
    assert not shared_config(changed, None, False).search.pair_ngram


def test_the_header_is_valid_for_the_hub(shared: Path) -> None:
    header = read_header(shared)
    assert header["license"] == "cc-by-4.0" and header["language"] == ["en"] and header["datasets"] == ["user/copies"]
    assert header["library_name"] == "pellucid" and header["pipeline_tag"] == "text2text-generation"
    assert "pellucid" in header["tags"] and header["metrics"] == ["exact_match", "symbol_error_rate"]
    results = ModelCard.load(shared / "README.md").data.eval_results
    assert [result.metric_type for result in results] == ["exact_match", "symbol_error_rate"]
    assert all(0 <= result.metric_value <= 1000 and result.dataset_type == "user/copies" for result in results)
    assert re.search(r"95 % interval \d+\.\d\d to \d+\.\d\d", results[0].metric_name)


def test_the_card_states_data_scores_calibration_license_and_use(shared: Path) -> None:
    card = (shared / "README.md").read_text("utf-8")
    confidence = pellucid.load(copies_with_pair_ngram()).confidence
    assert confidence is not None
    exact = 100 * (1 - len(confidence.wrong_confidences) / confidence.num_examples)
    for text in (
        "# Copies\n",
        "| training pairs | 40 |",
        "| validation pairs | 10 |",
        "| source symbols | 4 (characters) |",
        f"| exact match | beam size 5, with the pair n-gram model | 10 | {exact:.2f} % | ",
        "| exact match | greedy search, network alone | 10 | ",
        "Expected calibration error on them: ",
        "| 5 % | ",
        "](attention.png)",
        "`cc-by-4.0`",
        "Copies of letters.",
        'model = pellucid.from_pretrained("copies")',
        'print(model.predict(["abc"])[0].output)',
    ):
        assert text in card, text


def test_the_card_has_no_scores_of_another_search(tmp_path: Path) -> None:
    """The confidence of the run, and the score with it, are those of its own search."""
    for name, beam_size in (("own", 5), ("other", 1)):
        pellucid.load(copies_with_pair_ngram()).with_beam(beam_size).save_pretrained(tmp_path / name, CARD)
    own, other = ((tmp_path / name / "README.md").read_text("utf-8") for name in ("own", "other"))
    for text in ("## Confidence", "| exact match | beam size "):
        assert text in own and text not in other
    greedy = next(float(line.split("|")[4].rstrip("% ")) for line in other.splitlines() if "| exact match |" in line)
    assert f"| exact match | greedy search, network alone | 10 | {greedy:.2f} % |" in other
    values = ModelCard.load(tmp_path / "other" / "README.md").data.eval_results
    assert values[0].metric_type == "exact_match" and values[0].metric_value == pytest.approx(greedy, abs=0.005)


def test_a_score_of_a_part_of_the_validation_set_says_so() -> None:
    model = pellucid.load(copies_with_pair_ngram())
    assert model.confidence is not None
    model = replace(model, confidence=replace(model.confidence, num_examples=7, wrong_confidences=(0.5,)))
    score = ScoreFact("exact_match", "exact match", 30.0, 10.0, 60.0)
    facts = TrainingFacts(validation_examples=1004, updates=1128, scores=(score,))
    contents = CardContents("Title", "copies", model, facts, CARD, None, False)
    card = build_hub_card(contents)
    assert "| exact match | beam size 5, with the pair n-gram model | 7 of 1,004 | 85.71 % | " in card
    assert "| exact match | greedy search, network alone | 1,004 | 30.00 % | 10.00 to 60.00 |" in card
    assert (
        '"name": "exact match (%), beam size 5, with the pair n-gram model, on 7 of 1,004 pairs, 95 % interval ' in card
    )
    assert "| updates until the best validation | 1,128 |" in card and "| columns |" not in card
    config = override_settings(model.config, {"data": {"source_column": "word", "target_column": "sound"}})
    assert "| columns | word → sound |" in build_hub_card(contents._replace(model=replace(model, config=config)))


def test_the_card_names_validation_pairs_of_the_training_set(tmp_path: Path) -> None:
    """Regression test: a model was published with its exact match of 88 % on training pairs, without a word."""
    run = copy_run_folder(copy_task_run().run, tmp_path / "run")
    records = [json.loads(line) for line in (run / "log.jsonl").read_text("utf-8").splitlines()]
    read = [record for record in records if record["event"] == "read"]
    read[1]["shared"] = read[1]["examples"]
    (run / "log.jsonl").write_text("".join(f"{json.dumps(record)}\n" for record in records), "utf-8")
    pellucid.load(run).save_pretrained(tmp_path / "shared", CARD)
    number = f"{read[1]['examples']:,}"
    sentence = f"* {number} of {number} validation examples are also in the training set: scores and confidence are too"
    assert sentence in (tmp_path / "shared" / "README.md").read_text("utf-8")
    assert read_manifest(tmp_path / "shared").facts.shared_examples == read[1]["examples"]


@pytest.mark.slow
def test_a_file_that_the_manifest_does_not_list_is_refused(shared: Path, tmp_path: Path) -> None:
    ensemble = tmp_path / "ensemble"
    pellucid.load(ensemble_of_copies()).save_pretrained(ensemble)
    single = copy_run_folder(shared, tmp_path / "single")
    for folder, names in ((single, ["confidence.json"]), (ensemble, ["seed-2/confidence.json"])):
        files = json.loads((folder / MANIFEST).read_text("utf-8"))["files"]
        change_manifest(folder, {"files": {name: file for name, file in files.items() if name not in names}})
        with pytest.raises(RunError, match=rf"manifest\.json does not list {names[0]}, which prediction would read"):
            pellucid.from_pretrained(folder)
        (folder / names[0]).unlink()
        pellucid.from_pretrained(folder)
    copy_run_folder(ensemble / "seed-1", ensemble / "seed-3")
    with pytest.raises(RunError, match=r"does not list seed-3/confidence\.json"):
        pellucid.from_pretrained(ensemble)


def test_a_card_without_scores_and_with_special_characters_is_valid(tmp_path: Path) -> None:
    run = copy_run_folder(copy_task_run().run, tmp_path / "run")
    for name in ("log.jsonl", "confidence.json"):
        (run / name).unlink()
    title = 'A "title": 100 %\n# with | marks\x85 \\ 😀'
    pellucid.load(run).save_pretrained(tmp_path / "shared", replace(CARD, title=title, datasets=()))
    header = read_header(tmp_path / "shared")
    assert "model-index" not in header and "datasets" not in header
    card = (tmp_path / "shared" / "README.md").read_text("utf-8")
    assert "The run folder holds no scores." in card and "\n# with" not in card
    pellucid.load(copy_task_run().run).save_pretrained(tmp_path / "named", replace(CARD, title=title))
    assert "😀" in ModelCard.load(tmp_path / "named" / "README.md").data.model_name


def test_an_ensemble_is_shared_with_its_members(tmp_path: Path) -> None:
    run, folder = ensemble_of_copies(), tmp_path / "ensemble"
    ensemble = pellucid.load(run)
    ensemble.save_pretrained(folder, CARD)
    members = [f"seed-{seed}/{name}" for seed in (1, 2) for name in MODEL_FILES]
    names = ["README.md", "attention.png", "confidence.json", "ensemble.json", "manifest.json", *members]
    assert file_names(folder) == sorted(names)
    loaded = pellucid.from_pretrained(folder)
    assert outputs(loaded) == outputs(ensemble) and loaded.confidence is not None
    assert loaded.pair_ngram_weight == ensemble.pair_ngram_weight
    assert "Ensemble of 2 networks." in (folder / "README.md").read_text("utf-8")
    load_runtime(run).save_pretrained(tmp_path / "again", CARD)
    assert (tmp_path / "again" / MANIFEST).read_bytes() == (folder / MANIFEST).read_bytes()


def test_the_search_settings_of_the_model_are_saved(tmp_path: Path) -> None:
    for name, run in (("single", copies_with_pair_ngram()), ("ensemble", ensemble_of_copies())):
        model = pellucid.load(run).with_beam(2)
        model.save_pretrained(tmp_path / name)
        loaded = pellucid.from_pretrained(tmp_path / name)
        assert loaded.config.search.beam_size == 2 and outputs(loaded) == outputs(model)


def test_a_shared_folder_can_be_shared_again_with_its_facts(shared: Path, tmp_path: Path) -> None:
    pellucid.from_pretrained(shared).save_pretrained(tmp_path / "copies", CARD)
    assert file_names(tmp_path / "copies") == file_names(shared)
    for name in file_names(shared):
        assert (tmp_path / "copies" / name).read_bytes() == (shared / name).read_bytes(), name


def test_a_run_without_pair_ngram_model_is_loaded_without_warnings(tmp_path: Path) -> None:
    model = pellucid.load(digits_run().run)
    assert model.pair_ngram_weight == 0
    model.save_pretrained(tmp_path / "digits")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        loaded = pellucid.from_pretrained(tmp_path / "digits")
    assert not (tmp_path / "digits" / "pair_ngram.safetensors").exists()
    assert outputs(loaded) == outputs(model)
    sources = ["one two", "three"]
    assert [each.output for each in loaded.predict(sources)] == [each.output for each in model.predict(sources)]


def test_a_changed_model_is_not_saved_as_the_run_it_was_loaded_from(tmp_path: Path) -> None:
    model = pellucid.load(copies_with_pair_ngram())
    with torch.no_grad():
        next(model.network.parameters()).add_(1)
    with pytest.raises(ArgumentError, match=r"^model: expected the parameters in .*pellucid\.save\(model, folder\)"):
        model.save_pretrained(tmp_path / "changed")
    assert os.listdir(tmp_path) == []
    with pytest.raises(ArgumentError, match="confidence"):
        replace(pellucid.load(copies_with_pair_ngram()), confidence=None).save_pretrained(tmp_path / "changed")
    with pytest.raises(ArgumentError, match="of no folder or of several"):
        pellucid.load([copies_with_pair_ngram()]).save_pretrained(tmp_path / "several")
    pellucid.save(model, tmp_path / "saved")
    loaded = pellucid.load(tmp_path / "saved")
    loaded.save_pretrained(tmp_path / "changed")
    assert outputs(pellucid.from_pretrained(tmp_path / "changed")) == outputs(loaded)


@pytest.mark.parametrize("ensemble", [False, True])
def test_changed_parameters_of_the_runtime_are_not_shared_as_those_of_the_run(tmp_path: Path, ensemble: bool) -> None:
    model = load_runtime(ensemble_of_copies() if ensemble else copies_with_pair_ngram())
    model.save_pretrained(tmp_path / "equal")
    first, *others = model.network
    gate = first.arrays.decoder.layers[0].cell.input_bias + 1
    layer = replace(first.arrays.decoder.layers[0], cell=replace(first.arrays.decoder.layers[0].cell, input_bias=gate))
    decoder = replace(first.arrays.decoder, layers=(layer,))
    networks = (*others, replace(first, arrays=replace(first.arrays, decoder=decoder)))
    with pytest.raises(ArgumentError, match=r"^model: expected the parameters in "):
        replace(model, network=networks).save_pretrained(tmp_path / "changed")
    assert os.listdir(tmp_path) == ["equal"]


@pytest.mark.skipif(os.name == "nt", reason="names that Windows does not have")
@pytest.mark.parametrize("name", ['my "model"', "it's `mine`", "-v", "a $HOME b", "a\nb", "größe"])
def test_the_commands_of_the_card_name_the_folder_whatever_its_name_is(tmp_path: Path, name: str) -> None:
    result = run_pellucid("share", copies_with_pair_ngram(), "--to", f"./{name}", folder=tmp_path)
    assert result.code == 0, result.err
    card = (tmp_path / name / "README.md").read_text("utf-8")
    python, shell = re.findall(r"^```(?:python|sh)\n(.*?)\n```$", card, re.DOTALL | re.MULTILINE)
    (call,) = [
        node for node in ast.walk(ast.parse(python)) if "pretrained" in getattr(getattr(node, "func", 0), "attr", "")
    ]
    written = name.replace("\n", "⏎")
    assert isinstance(call, ast.Call) and [ast.literal_eval(each) for each in call.args] == [written]
    assert shlex.split(shell) == ["pellucid", "predict", "./-v" if name == "-v" else written, "FILE"]


def test_the_card_of_the_current_folder_has_its_name(tmp_path: Path) -> None:
    (tmp_path / "here").mkdir()
    result = run_pellucid("share", copies_with_pair_ngram(), "--to", ".", folder=tmp_path / "here")
    assert result.code == 0, result.err
    assert 'from_pretrained("here")' in (tmp_path / "here" / "README.md").read_text("utf-8")


def test_a_folder_that_is_not_empty_is_refused_and_an_empty_one_is_filled(tmp_path: Path) -> None:
    model = pellucid.load(copies_with_pair_ngram())
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "a").touch()
    (tmp_path / "file").touch()
    for name in ("full", "file"):
        with pytest.raises(RunError, match=rf"{name} exists and is not an empty folder; name a new one$"):
            model.save_pretrained(tmp_path / name)
    (tmp_path / "empty").mkdir()
    model.save_pretrained(tmp_path / "empty")
    assert sorted(os.listdir(tmp_path)) == ["empty", "file", "full"] and (tmp_path / "empty" / MANIFEST).exists()


def test_a_run_is_not_shared_into_its_own_folder(tmp_path: Path) -> None:
    """Regression test: the shared folder became a part of the run, whose checksums changed."""
    run = copy_run_folder(copies_with_pair_ngram(), tmp_path / "run")
    (tmp_path / "link").symlink_to(run)
    (run / "empty").mkdir()
    before = sorted(os.listdir(run))
    for folder in (run, run / "new", run / "a" / "b", run / "empty", tmp_path / "link" / "new", run / ".." / "run"):
        with pytest.raises(RunError, match=f"is in the run folder {run}: name a folder outside of it$"):
            pellucid.load(run).save_pretrained(folder)
        result = run_pellucid("share", run, "--to", folder)
        assert usage_error_message(result) == f"{folder} is in the run folder {run}: name a folder outside of it"
    assert sorted(os.listdir(run)) == before and sorted(os.listdir(tmp_path)) == ["link", "run"]


def test_an_interrupted_save_leaves_no_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = pellucid.load(copies_with_pair_ngram())
    monkeypatch.setattr("pellucid.sharing.shared_folder.write_json", lambda *_: (_ for _ in ()).throw(OSError(28, "x")))
    with pytest.raises(RunError, match=r"^cannot write "):
        model.save_pretrained(tmp_path / "new")
    assert os.listdir(tmp_path) == []


def test_a_shared_folder_may_be_reached_by_a_link_but_not_its_members(tmp_path: Path) -> None:
    """The guide to the service recommends a link to the folder."""
    folder = tmp_path / "shared"
    (folder / "member-1").mkdir(parents=True)
    names = [f"{member}{name}" for member in ("", "member-1/") for name in REQUIRED_FILES]
    for name in names:
        (folder / name).write_text(name)
    digests = {name: digest_file(folder / name) for name in names}
    files = {name: SharedFile(*digest) for name, digest in digests.items() if digest is not None}
    manifest = Manifest(format=1, pellucid="0", task="transduce", extensions={}, files=files)
    (tmp_path / "current").symlink_to(folder)
    check_files(tmp_path / "current", manifest)
    (folder / "member-1").rename(tmp_path / "member-1")
    (folder / "member-1").symlink_to(tmp_path / "member-1")
    with pytest.raises(RunError, match=r"current: member-1/.* is a symbolic link: expected a regular file"):
        check_files(tmp_path / "current", manifest)


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("model.safetensors", "other bytes", "model.safetensors has another size or SHA-256 than manifest.json"),
        ("vocabulary.json", "cut", "vocabulary.json has another size or SHA-256 than manifest.json"),
        ("pair_ngram.safetensors", "missing", "pair_ngram.safetensors is missing, but is listed in manifest.json"),
        ("config.toml", "link", "config.toml is a symbolic link"),
    ],
)
def test_changed_files_are_found_before_loading(
    shared: Path, tmp_path: Path, name: str, change: str, message: str
) -> None:
    folder = copy_run_folder(shared, tmp_path / "copy")
    path = folder / name
    content = path.read_bytes()
    path.unlink()
    if change == "link":
        path.symlink_to(shared / name)
    elif change != "missing":
        path.write_bytes(content[:-1] if change == "cut" else bytes([content[0] ^ 1]) + content[1:])
    with pytest.raises(RunError, match=re.escape(message)):
        pellucid.from_pretrained(folder)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"format": 2, "new": []},
            "is of format 2, and this version .* reads formats up to 1: install a newer",
        ),
        ({"format": "x"}, "manifest.json is damaged: "),
        ({"new": 1}, "manifest.json is damaged: .*new"),
        ({"files": {}}, "manifest.json is damaged: "),
        ({"files": {"../config.toml": {"size": 1, "sha256": "0" * 64}}}, "lists '../config.toml', which no shared"),
        ({"files": {"code.py": {"size": 1, "sha256": "0" * 64}}}, "lists 'code.py', which no shared model has"),
        ({"files": {"config.toml": {"size": 2**30, "sha256": "0" * 64}}}, "config.toml is too large: it has 1,073,741"),
        ({"files": {"config.toml": {"size": 9, "sha256": "0" * 64}}}, "does not list vocabulary.json, which every"),
        ({"files": {"a/config.toml": {"size": 9, "sha256": "0" * 64}}}, "does not list a/vocabulary.json"),
    ],
)
def test_invalid_manifests_are_refused(shared: Path, tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    folder = copy_run_folder(shared, tmp_path / "copy")
    change_manifest(folder, changes)
    with pytest.raises(RunError, match=message):
        pellucid.from_pretrained(folder)


def test_a_run_folder_is_loaded_without_a_manifest_and_a_missing_folder_is_named(tmp_path: Path) -> None:
    run = copies_with_pair_ngram()
    assert outputs(pellucid.from_pretrained(run)) == outputs(pellucid.load(run))
    with pytest.raises(RunError, match=r"holds no manifest\.json: expected a folder that pellucid share"):
        read_manifest(run)
    with pytest.raises(RunError, match="does not exist: expected a folder, or a repository with a revision"):
        pellucid.from_pretrained(tmp_path / "missing")


def test_code_of_other_packages_is_named_and_never_loaded_from_the_folder(shared: Path, tmp_path: Path) -> None:
    folder = copy_run_folder(shared, tmp_path / "copy")
    (folder / MANIFEST).unlink()
    path = folder / "config.toml"
    path.write_text(path.read_text("utf-8").replace('type = "additive"', 'type = "mine"'), "utf-8")
    (folder / "mine.py").write_text("raise SystemExit('executed')")
    with pytest.raises(ConfigError, match="'mine' is neither built in nor installed: install the package"):
        pellucid.from_pretrained(folder)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("../up.json", "invalid path '../up.json'"),
        ("a/../b.json", "invalid path"),
        ("/etc/passwd", "invalid path"),
        ("a\\b.json", "invalid path"),
        ("C:/x.json", "invalid path"),
        ("a\nb.json", "invalid path"),
        ("pytorch_model.bin", "'pytorch_model.bin', which may contain code"),
        ("data/model.PKL", "'data/model.PKL', which may contain code"),
        ("modeling.py", "'modeling.py', which may contain code"),
    ],
)
def test_paths_that_leave_the_folder_and_files_with_code_are_refused(name: str, message: str) -> None:
    check_repository_names("user/model", [".gitattributes", "LICENSE", "onnx/encoder.onnx"])
    with pytest.raises(RunError, match=re.escape(message)):
        check_repository_names("user/model", ["config.toml", name])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"license": "MIT License"}, "license: expected an identifier such as 'apache-2.0'"),
        ({"languages": ("English",)}, "languages: expected a code such as 'en'"),
        ({"datasets": ("a/b/c",)}, "datasets: expected an identifier such as 'user/data'"),
        ({"example": "x" * 20_001}, "example: expected at most 20,000 characters"),
    ],
)
def test_options_of_the_card_are_checked(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ArgumentError, match=re.escape(message)):
        pellucid.CardOptions(**options)


@pytest.mark.slow
def test_a_shared_folder_is_loaded_without_pytorch_and_sharing_names_what_is_missing(shared: Path) -> None:
    program = (
        "import pellucid\n"
        "model = pellucid.from_pretrained(sys.argv[1])\n"
        "print(type(model).__name__, model.predict(['ab'])[0].output)\n"
        "try:\n    model.save_pretrained('/tmp/nowhere')\n"
        "except pellucid.InputError as error:\n    print(error)\n"
    )
    result = run_blocked(program, str(shared))
    expected = pellucid.load(shared).predict(["ab"])[0].output
    assert result.stdout.splitlines()[0] == f"RuntimePredictor {expected}", result.stderr
    assert "save_pretrained needs the package 'torch', which is not installed" in result.stdout
    result = run_command("share", str(shared), "--to", "/tmp/nowhere")
    assert result.returncode == 2 and "needs the package" in result.stderr


def test_a_training_does_not_write_into_a_shared_folder(shared: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(shared, tmp_path / "copy"))
    with pytest.raises(RunError, match="name a new folder"):
        check_training_folder(folder)


def test_files_of_a_newer_format_ask_for_a_newer_version(tmp_path: Path) -> None:
    """Of a run folder as well, file by file."""
    run = copy_run_folder(ensemble_of_copies(), tmp_path / "run")
    single = run / "seed-1"
    expected = "is of format 9, and this version of Pellucid, .*, reads formats up to [12]: install a newer version of "
    for folder, name, key in (
        (single, "vocabulary.json", "format"),
        (single, "confidence.json", "version"),
        (run, "ensemble.json", "format"),
    ):
        content = (folder / name).read_bytes()
        (folder / name).write_text(json.dumps({**json.loads(content), key: 9, "new": True}), "utf-8")
        with pytest.raises(RunError, match=rf"{name} {expected}Pellucid$"):
            pellucid.load(folder)
        (folder / name).write_bytes(content)
    for name in ("pair_ngram.safetensors", "model.safetensors"):
        path = single / name
        content = path.read_bytes()
        path.write_bytes(re.sub(rb'"format":"\d"', b'"format":"9"', content, count=1))
        with pytest.raises(RunError, match=rf"{re.escape(name)} {expected}Pellucid$"):
            pellucid.load(single)
        if name.startswith("pair"):
            path.write_bytes(content)
    with (single / "config.toml").open("a") as file:
        file.write("\n[new]\nsetting = 1\n")
    with pytest.raises(RunError, match=rf"model\.safetensors {expected}Pellucid$"):  # explains the unknown settings
        pellucid.load(single)


@pytest.mark.parametrize(
    ("task", "tag", "method"),
    [
        ("tag", "token-classification", "tag accuracy"),
        ("classify", "text-classification", "accuracy"),
        ("point", None, "accuracy"),
    ],
)
def test_models_of_other_tasks_are_shared(tmp_path: Path, task: TaskName, tag: str | None, method: str) -> None:
    model = pellucid.load(task_run(task).run)
    source = read_examples(task_run(task).files.valid, model.config.data).examples[0].source
    model.save_pretrained(tmp_path / "shared", pellucid.CardOptions(example=source))
    assert read_header(tmp_path / "shared").get("pipeline_tag") == tag
    card = (tmp_path / "shared" / "README.md").read_text("utf-8")
    assert f"| {method} | " in card and "## Example" in card
    loaded = pellucid.from_pretrained(tmp_path / "shared")
    assert loaded.predict([source])[0].output == model.predict([source])[0].output


def test_the_example_of_a_model_with_features_has_features(tmp_path: Path) -> None:
    pairs = [Example(text, text, "UP" if number % 2 else "DOWN") for number, text in enumerate(("ab", "b", "ba", "a"))]
    files = TrainingFiles(
        write_pairs(tmp_path / "train.tsv", pairs), write_pairs(tmp_path / "dev.tsv", [Example("aa", "aa", "UP")])
    )
    config = make_small_config({"epochs": 1}, data={"features_column": "3"})
    train_to_end(files, tmp_path / "run", config)
    model = pellucid.load(tmp_path / "run")
    model.save_pretrained(tmp_path / "shared", pellucid.CardOptions(example="ab", example_features="UP"))
    card = (tmp_path / "shared" / "README.md").read_text("utf-8")
    assert 'print(model.predict(["ab"], ["UP"])[0].output)' in card and "    ab (UP) → " in card
    model.save_pretrained(tmp_path / "plain")
    assert 'model.predict(["TEXT"], ["FEATURES"])' in (tmp_path / "plain" / "README.md").read_text("utf-8")
    with pytest.raises(ArgumentError, match="example_features: expected '' without an example"):
        pellucid.CardOptions(example_features="UP")
    with pytest.raises(InputError, match="features"):
        pellucid.load(digits_run().run).save_pretrained(
            tmp_path / "other", pellucid.CardOptions(example="one", example_features="UP")
        )


def test_an_unfinished_training_is_named_on_the_card(tmp_path: Path) -> None:
    files = write_copy_files(tmp_path)
    for event in (events := train_run(files, tmp_path / "run", make_small_config({"epochs": 3}))):
        if isinstance(event, FileSaved) and (tmp_path / "run" / "model.safetensors").exists():
            break
    events.close()
    result = run_pellucid("share", tmp_path / "run", "--to", tmp_path / "shared")
    assert result.code == 0 and "the training is unfinished" in result.err
    assert "shared before the end of its training" in (tmp_path / "shared" / "README.md").read_text("utf-8")
