"""Pushing to and downloading from the hub, against a stand-in of it on the loopback interface."""

import json
import os
import re
import socket
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
from huggingface_hub import ModelCard, constants
from loopback_hub import TOKEN, LoopbackHub, loopback_hub
from shared_models import CARD, copies_with_pair_ngram, ensemble_of_copies, file_names, outputs
from test_runtime_loader import run_blocked

import pellucid
from pellucid.errors import ArgumentError, ConfigError, RunError, quote
from pellucid.sharing.hub import RepositoryRevision, check_repository_id, download_model, require_hub
from pellucid.sharing.manifest import MANIFEST, MAX_DOCUMENT_SIZE
from pellucid.sharing.pretrained_loader import download_to_folder

REPOSITORY = "user/copies"


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[LoopbackHub]:
    """Serve a hub; this process may write to it and has an empty cache."""
    with loopback_hub() as server:
        for name, value in (("HF_ENDPOINT", server.address), ("HF_TOKEN", TOKEN), ("HF_HUB_CACHE", tmp_path / "cache")):
            monkeypatch.setenv(name, str(value))
        yield server


def push(run: Path | None = None) -> str:
    """Push a run; return the hash of the commit."""
    return pellucid.load(run or copies_with_pair_ngram()).push_to_hub(REPOSITORY, CARD, commit_message="First").commit


def error_of(revision: str | None, repository: str = REPOSITORY) -> str:
    """Return the message of a failed download."""
    with pytest.raises((RunError, ConfigError)) as raised:
        pellucid.from_pretrained(repository, revision)
    assert "\n" not in str(raised.value)
    return str(raised.value)


def test_a_pushed_model_is_downloaded_at_its_commit_and_gives_the_same_outputs(hub: LoopbackHub) -> None:
    model = pellucid.load(copies_with_pair_ngram())
    commit = model.push_to_hub(REPOSITORY, CARD)
    assert commit == (REPOSITORY, commit.commit, f"{hub.address}/{REPOSITORY}/commit/{commit.commit}")
    files = hub.repositories[REPOSITORY].files("main") or {}
    assert {"README.md", "attention.png", MANIFEST, "model.safetensors", "config.toml"} < set(files)
    assert not hub.repositories[REPOSITORY].private
    card = ModelCard(files["README.md"].decode())
    assert "- name: Copies" in card.content
    assert f'from_pretrained("{REPOSITORY}", revision="COMMIT")' in card.text
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert outputs(pellucid.from_pretrained(REPOSITORY, commit.commit)) == outputs(model)


@pytest.mark.slow
def test_an_ensemble_is_pushed_and_downloaded_to_a_folder(hub: LoopbackHub, tmp_path: Path) -> None:
    commit = push(ensemble_of_copies())
    downloaded = download_to_folder(RepositoryRevision(REPOSITORY, commit), tmp_path / "ensemble")
    assert downloaded.commit == commit and len(downloaded.manifest.files) == 12
    assert file_names(tmp_path / "ensemble") == sorted(
        [*downloaded.manifest.files, MANIFEST, "README.md", "attention.png"]
    )
    assert not any(path.is_symlink() for path in (tmp_path / "ensemble").rglob("*"))
    assert outputs(pellucid.load(tmp_path / "ensemble")) == outputs(pellucid.load(ensemble_of_copies()))


@pytest.mark.slow
def test_a_commit_stays_the_same_when_the_repository_changes(hub: LoopbackHub) -> None:
    first = push()
    model = pellucid.load(copies_with_pair_ngram()).with_beam(2)
    second = model.push_to_hub(REPOSITORY, CARD).commit
    assert first != second
    assert pellucid.from_pretrained(REPOSITORY, first).config.search.beam_size == 5
    with pytest.warns(UserWarning, match=rf"^{REPOSITORY}@main is the commit {second} now, .*: the revision {second} "):
        assert pellucid.from_pretrained(REPOSITORY, "main").config.search.beam_size == 2


def test_a_revision_is_required_and_the_newest_commit_is_named(hub: LoopbackHub) -> None:
    commit = push()
    assert error_of(None) == (
        f"'{REPOSITORY}' is not a folder here; for a repository of the hub, give revision={commit}, its newest commit, "
        "or another revision"
    )
    assert error_of(None, "user/missing").endswith("for a repository of the hub, give revision=COMMIT")


@pytest.mark.slow
def test_a_downloaded_commit_is_read_from_the_cache_without_the_network(hub: LoopbackHub) -> None:
    commit = push()
    pellucid.from_pretrained(REPOSITORY, commit)
    hub.requests.clear()
    pellucid.from_pretrained(REPOSITORY, commit)
    assert hub.requests == []


@pytest.mark.slow
def test_a_damaged_file_in_the_cache_is_downloaded_again(hub: LoopbackHub) -> None:
    commit = push()
    folder = download_model(RepositoryRevision(REPOSITORY, commit)).folder
    path = (folder / "model.safetensors").resolve()
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    assert outputs(pellucid.from_pretrained(REPOSITORY, commit)) == outputs(pellucid.load(copies_with_pair_ngram()))


@pytest.mark.slow
def test_only_files_of_the_model_are_downloaded(hub: LoopbackHub, tmp_path: Path) -> None:
    push()
    commit = hub.repositories[REPOSITORY].commit(
        {"notes.txt": b"text", "onnx/encoder.onnx": b"graph", "log.jsonl": b""}
    )
    download_to_folder(RepositoryRevision(REPOSITORY, commit), tmp_path / "model")
    assert not {"notes.txt", "onnx", "log.jsonl"} & set(os.listdir(tmp_path / "model"))
    assert not any("notes" in request or "onnx" in request for request in hub.requests)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("pytorch_model.bin", b"\x80\x04.", "holds 'pytorch_model.bin', which may contain code: load only "),
        ("modeling.py", b"import os", "holds 'modeling.py', which may contain code"),
        ("../evil.json", b"{}", "holds a file with the invalid path '../evil.json'"),
        ("a/../../evil.json", b"{}", "holds a file with the invalid path"),
        # git stores a symbolic link as a file with the path of its target
        ("model.safetensors", b"/etc/passwd", "model.safetensors with .* bytes, and the repository has 11 bytes"),
        ("vocabulary.json", b"", "vocabulary.json with .* bytes, and the repository has 0 bytes"),
        (MANIFEST, b"[]", "manifest.json is damaged: "),
        (
            MANIFEST,
            b'{"format": 3}',
            r"@\w+: manifest.json is of format 3, .* install a newer version",
        ),
    ],
)
def test_malicious_and_damaged_repositories_are_refused(
    hub: LoopbackHub, tmp_path: Path, name: str, content: bytes, message: str
) -> None:
    push()
    commit = hub.repositories[REPOSITORY].commit({name: content})
    assert re.search(message, error_of(commit))
    with pytest.raises(RunError):
        download_to_folder(RepositoryRevision(REPOSITORY, commit), tmp_path / "model")
    assert not (tmp_path / "model").exists() and not list(tmp_path.glob(".model*"))


def test_a_file_of_the_right_size_with_other_content_is_refused(hub: LoopbackHub) -> None:
    """As after an edit of one file on the site of the hub."""
    push()
    repository = hub.repositories[REPOSITORY]
    content = (repository.files("main") or {})["config.toml"]
    commit = repository.commit({"config.toml": content.replace(b"beam_size = 5", b"beam_size = 9")})
    assert "config.toml has another size or SHA-256 than manifest.json: the copy is incomplete" in error_of(commit)


@pytest.mark.slow
@pytest.mark.parametrize(
    "info",
    [
        [1],
        {"sha": "0" * 40},
        *({"id": "user/copies", "sha": "0" * 40, "siblings": siblings} for siblings in (5, [5], [{"size": 5}])),
        *({"id": "user/copies", "sha": "0" * 40, "siblings": [{"rfilename": name}]} for name in (5, None)),
        {"id": "user/copies", "sha": "0" * 40, "siblings": [{"rfilename": MANIFEST, "size": "x"}]},
    ],
)
def test_answers_of_another_form_are_errors(hub: LoopbackHub, info: object) -> None:
    push()
    hub.info = info
    assert error_of("main").startswith(f"cannot download {REPOSITORY}@main: ")


@pytest.mark.slow
def test_a_card_that_is_larger_than_announced_is_left_out(hub: LoopbackHub, tmp_path: Path) -> None:
    push()
    hub.sizes["README.md"] = 2000
    commit = hub.repositories[REPOSITORY].commit({"README.md": b"#" * (MAX_DOCUMENT_SIZE + 1)})
    download_to_folder(RepositoryRevision(REPOSITORY, commit), tmp_path / "model")
    assert "README.md" not in file_names(tmp_path / "model") and "attention.png" in file_names(tmp_path / "model")


def test_huge_files_are_refused_before_they_are_downloaded(hub: LoopbackHub) -> None:
    commit = push()
    hub.sizes[MANIFEST] = 2**40
    assert "manifest.json has 1,099,511,627,776 bytes: expected at most 1,048,576 bytes" in error_of(commit)
    hub.sizes.clear()
    files = hub.repositories[REPOSITORY].files(commit) or {}
    manifest = json.loads(files[MANIFEST])
    manifest["files"]["model.safetensors"]["size"] = 2**40
    hub.sizes["model.safetensors"] = 2**40
    huge = hub.repositories[REPOSITORY].commit({MANIFEST: json.dumps(manifest).encode()})
    assert "model.safetensors is too large: it has 1,099,511,627,776 bytes" in error_of(huge)
    assert not any("resolve" in request and "model.safetensors" in request for request in hub.requests)


@pytest.mark.slow
def test_a_download_that_breaks_off_is_reported_and_can_be_repeated(hub: LoopbackHub, tmp_path: Path) -> None:
    commit = push()
    hub.cut.add("model.safetensors")
    with pytest.raises(RunError, match=rf"^cannot download model\.safetensors of {REPOSITORY}@{commit}: "):
        download_to_folder(RepositoryRevision(REPOSITORY, commit), tmp_path / "model")
    assert not (tmp_path / "model").exists()
    hub.cut.clear()
    assert outputs(pellucid.from_pretrained(REPOSITORY, commit)) == outputs(pellucid.load(copies_with_pair_ngram()))


def test_missing_repositories_revisions_and_manifests_are_named(hub: LoopbackHub) -> None:
    assert "no such repository" in error_of("main", "user/missing")
    push()
    assert "cannot download user/copies@nothing: there is no such revision: name a commit" in error_of("nothing")
    commit = hub.add("user/other", {"config.json": b"{}"})
    assert "holds no manifest.json: it is not a model that pellucid share" in error_of(commit, "user/other")
    with pytest.raises(ConfigError, match="'copies' is not the name of a repository: expected USER/MODEL"):
        check_repository_id("copies")
    with pytest.raises(ConfigError, match="is not the name of a repository"):
        pellucid.load(copies_with_pair_ngram()).push_to_hub("a/b/c")


@pytest.mark.slow
def test_without_a_token_nothing_is_pushed_and_private_models_are_not_found(
    hub: LoopbackHub, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    model = pellucid.load(copies_with_pair_ngram())
    commit = model.push_to_hub(REPOSITORY, CARD, private=True).commit
    assert hub.repositories[REPOSITORY].private
    assert outputs(pellucid.from_pretrained(REPOSITORY, commit)) == outputs(model)
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "other"))
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "token"))
    monkeypatch.delenv("HF_TOKEN")
    advice = "the hub asks for an access token, or there is no such repository: log in by hf auth login, or set the"
    with pytest.raises(RunError, match=rf"^cannot push to {REPOSITORY}: {advice} variable HF_TOKEN$"):
        model.push_to_hub(REPOSITORY)
    assert f"cannot download {REPOSITORY}@{commit}: {advice}" in error_of(commit)
    assert outputs(pellucid.from_pretrained(REPOSITORY, commit, token=TOKEN)) == outputs(model)


def test_without_the_network_the_message_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{unused.getsockname()[1]}")
        monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "cache"))
        monkeypatch.setenv("HF_TOKEN", TOKEN)
        expected = "the hub cannot be reached, or the connection broke: "
        assert f"cannot download {REPOSITORY}@main: {expected}" in error_of("main")
        with pytest.raises(RunError, match=f"cannot push to {REPOSITORY}: {expected}"):
            pellucid.load(copies_with_pair_ngram()).push_to_hub(REPOSITORY)
        assert error_of(None).endswith("give revision=COMMIT")


NOT_REPOSITORIES = [
    "user/a--b",
    "user/a..b",
    "user/a.git",
    "user/a-",
    "user-/a",
    "user/a.",
    "user/\u00e4",
    "user/" + 97 * "a",
]


@pytest.mark.parametrize("name", NOT_REPOSITORIES)
@pytest.mark.parametrize("revision", ["main", "0" * 40])
def test_names_that_the_hub_refuses_are_errors(name: str, revision: str) -> None:
    assert error_of(revision, name).startswith(f"{quote(name)} is not the name of a repository: expected USER/MODEL, ")


def test_a_missing_folder_with_a_name_that_no_repository_has_is_missing() -> None:
    assert error_of(None, "runs/a--b").startswith("runs/a--b does not exist: expected a folder, or a repository")


def test_a_cache_that_cannot_be_read_is_an_error(
    hub: LoopbackHub, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    commit = push()
    (tmp_path / "file").touch()
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "file"))
    assert f"cannot download manifest.json of {REPOSITORY}@{commit}: " in error_of(commit)


def test_arguments_are_checked() -> None:
    model = pellucid.load(copies_with_pair_ngram())
    with pytest.raises(ArgumentError, match="of no folder or of several"):
        pellucid.load([copies_with_pair_ngram()]).push_to_hub(REPOSITORY)
    with pytest.raises(ConfigError, match="expected USER/MODEL"):
        model.push_to_hub("")


def test_the_package_of_the_hub_is_named_if_it_is_missing() -> None:
    require_hub("a test")
    program = (
        "sys.modules['huggingface_hub'] = None\nimport pellucid\n"
        "try:\n    pellucid.from_pretrained('user/model', 'main')\n"
        "except pellucid.InputError as error:\n    print(error)\n"
    )
    result = run_blocked(program)
    assert result.stdout == (
        "downloading from the hub needs the package 'huggingface_hub', which is not installed: "
        "pip install 'pellucid[hub]'\n"
    ), result.stderr
