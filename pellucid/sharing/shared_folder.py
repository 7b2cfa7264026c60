"""Writing of shared folders: the files of a run that prediction reads, a model card, and a manifest.

The files of the run are copied; only `config.toml` is written anew, with the search settings of the model and without
the folders of files that the training read. The new folder is loaded and compared with the model before it gets its
name, so that a folder of this name is always complete.
"""

import re
import warnings
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import msgspec
import torch

from pellucid.config.settings import PATH_SETTINGS, Config, SearchConfig
from pellucid.config.task_settings import uses_pair_ngram
from pellucid.config.toml import to_toml
from pellucid.decoding.base_predictor import BasePredictor
from pellucid.decoding.model_sharing import CardOptions, HubCommit, HubRequest
from pellucid.decoding.predictor import Predictor
from pellucid.decoding.trace import Trace
from pellucid.errors import ArgumentError, RunError, quote
from pellucid.files import copy_regular, digest_file, file_exists, write_atomic, write_json, write_text
from pellucid.reporting.figures import attention_figure, to_png
from pellucid.run_folder.identity import PACKAGE, find_versions
from pellucid.run_folder.log import load_run_log
from pellucid.run_folder.pair_ngram_file import has_provisional_weight, load_pair_ngram, save_pair_ngram
from pellucid.run_folder.predictor_loader import load_without_warnings
from pellucid.run_folder.provisional_weight import provisional_weight
from pellucid.run_folder.run_files import CONFIDENCE, CONFIG, ENSEMBLE, MODEL, PAIR_NGRAM, VOCABULARY
from pellucid.run_folder.run_parts import read_run_settings, run_folders
from pellucid.runtime.loader import load_without_warnings as load_runtime
from pellucid.runtime.parameters import equal_arrays
from pellucid.runtime.predictor import RuntimePredictor
from pellucid.sharing.hub import push_folder
from pellucid.sharing.hub_card import CardContents, build_hub_card
from pellucid.sharing.manifest import (
    MANIFEST,
    MEMBER_FILES,
    MEMBER_NAME,
    PICTURE,
    README,
    Manifest,
    SharedFile,
)
from pellucid.sharing.new_folder import new_folder
from pellucid.sharing.training_facts import gather_facts
from pellucid.version import __version__


class ShareRequest(NamedTuple):
    """A run to share, and the texts of its card."""

    run: Path
    """Run folder, folder of an ensemble, or shared folder."""
    name: str
    """Name of the repository or folder, in the commands of the card."""
    card: CardOptions
    model: BasePredictor | None = None
    """Model in memory, with whose search settings the run is shared; None for those of the run."""


def write_shared_folder(request: ShareRequest, folder: Path) -> Manifest:
    """Write the shared folder of a run.

    Args:
        request: The run, and options of its card.
        folder: The folder, which must be missing or empty, and not in the folder of the run.

    Raises:
        ArgumentError: The model in memory is not that of the run folder.
        RunError: The run cannot be loaded, or the folder is not empty, is in that of the run, or cannot be written.
    """
    with new_folder(folder, request.run) as staging:
        return _write_files(request, staging)


def _write_files(request: ShareRequest, folder: Path) -> Manifest:
    """Write all files of a shared folder into a new folder."""
    search = None if request.model is None else request.model.config.search
    _copy_run(request.run, folder, search)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about versions: the run folder gave it before
        copy = load_without_warnings(folder)
        if request.model is not None:
            _check_same_model(request.model, copy, request.run)
    facts = gather_facts(request.run, copy.config)
    example = _decode_example(copy, request.card)
    has_picture = example is not None and _write_picture(example, folder / PICTURE)
    title = request.card.title or request.name.rpartition("/")[2]
    contents = CardContents(title, request.name, copy, facts, request.card, example, has_picture)
    write_text(folder / README, build_hub_card(contents))
    extensions = {name: version for name, version in find_versions(copy.config).items() if name != PACKAGE}
    manifest = Manifest(
        format=1,
        pellucid=__version__,
        task=copy.config.task,
        extensions=extensions,
        files=_list_files(folder),
        facts=facts,
    )
    write_json(folder / MANIFEST, manifest)
    return manifest


def _decode_example(model: Predictor, card: CardOptions) -> Trace | None:
    """Return the output of the example of a card; None without an example."""
    if not card.example:
        return None
    return model.predict([card.example], [card.example_features] if card.example_features else None)[0]


def _write_picture(example: Trace, path: Path) -> bool:
    """Draw the attention weights of an output, if it has any; return whether it has."""
    if not (example.attention.size and example.attention.any()):
        return False
    write_atomic(path, to_png(attention_figure(example)))
    return True


def _copy_run(run: Path, folder: Path, search: SearchConfig | None) -> None:
    """Copy the files of a run, or of an ensemble with its members."""
    members = run_folders(run)
    if members == [run]:
        _copy_member(run, folder, search)
        return
    for index, member in enumerate(members):
        if not MEMBER_NAME.fullmatch(member.name):
            raise RunError(
                f"{run}: the member {quote(member.name)} cannot be shared: expected a name of ASCII letters, digits, "
                "hyphens, dots and underscores; rename the folder, also in its ensemble.json"
            )
        (folder / member.name).mkdir()
        _copy_member(member, folder / member.name, search if index == 0 else None)
    for name in (ENSEMBLE, CONFIDENCE):
        if file_exists(run / name):
            copy_regular(run / name, folder / name)


def _copy_member(run: Path, folder: Path, search: SearchConfig | None) -> None:
    """Copy the files of one run that prediction reads."""
    config, vocabularies, identity = read_run_settings(run)
    has_pair_ngram = file_exists(run / PAIR_NGRAM)
    for name in (VOCABULARY, MODEL, PAIR_NGRAM, CONFIDENCE):
        if file_exists(run / name):
            copy_regular(run / name, folder / name)
    if has_provisional_weight(folder / PAIR_NGRAM):  # it follows from the log, which is not shared
        saved, weight = load_pair_ngram(run / PAIR_NGRAM, vocabularies), provisional_weight(identity, load_run_log(run))
        save_pair_ngram(folder / PAIR_NGRAM, saved._replace(weight=weight))
    write_text(folder / CONFIG, to_toml(shared_config(config, search, has_pair_ngram)))


def shared_config(config: Config, search: SearchConfig | None, has_pair_ngram: bool) -> Config:
    """Return the configuration of a run without the folders of files that its training read.

    Args:
        config: Configuration of the run.
        search: Other search settings; None for those of the run.
        has_pair_ngram: Whether the run has a pair n-gram model; without it, outputs are ranked by the network alone.
    """
    new_search = config.search if search is None else search
    if not has_pair_ngram and uses_pair_ngram(config):
        new_search = msgspec.structs.replace(new_search, pair_ngram=False)
    sections = {"search": new_search}
    for name, keys in PATH_SETTINGS.items():
        section = getattr(config, name)
        sections[name] = msgspec.structs.replace(section, **{key: _file_name(getattr(section, key)) for key in keys})
    return msgspec.structs.replace(config, **sections)


def _file_name(path: str) -> str:
    """Return the last part of a path of any system."""
    return re.split(r"[/\\]", path.rstrip("/\\"))[-1]


def _check_same_model(model: BasePredictor, copy: Predictor, run: Path) -> None:
    """Raise `ArgumentError` unless a model in memory gives the outputs of the files that were copied."""
    is_equal = {
        "number of networks": model.num_networks == copy.num_networks,
        "vocabularies": model.vocabularies == copy.vocabularies,
        "confidence": model.confidence == copy.confidence,
        "weight of the pair n-gram model": model.pair_ngram_weight == copy.pair_ngram_weight,
        "parameters": _equal_parameters(model, copy),
    }
    for name, equal in is_equal.items():
        if not equal:
            raise ArgumentError(
                f"model: expected the {name} in {run}, from which the model was loaded, got others: save the changed "
                "model by pellucid.save(model, folder), load that folder, and share it"
            )


def _equal_parameters(model: BasePredictor, copy: Predictor) -> bool:
    """Return whether a model, of PyTorch or of the runtime, has the parameters of the files that were copied."""
    if model.num_networks != copy.num_networks:
        return False
    if isinstance(model, Predictor):
        networks = zip(model.networks, copy.networks, strict=True)
        return all(_equal_tensors(one.state_dict(), other.state_dict()) for one, other in networks)
    if isinstance(model, RuntimePredictor):
        arrays = zip(model.network, load_runtime(copy.folder).network, strict=True)
        return all(equal_arrays(one.arrays, other.arrays) for one, other in arrays)
    raise ArgumentError(f"model: expected a predictor of PyTorch or of the runtime, got {quote(type(model).__name__)}")


def _equal_tensors(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    """Return whether two networks have equal parameters."""
    return one.keys() == other.keys() and all(torch.equal(one[name].cpu(), other[name].cpu()) for name in one)


def _list_files(folder: Path) -> dict[str, SharedFile]:
    """Return size and checksum of each file of the model, by its path."""
    members = [path for path in run_folders(folder) if path != folder]
    names = [name for name in (*MEMBER_FILES, ENSEMBLE) if file_exists(folder / name)]
    names += [f"{path.name}/{name}" for path in members for name in MEMBER_FILES if file_exists(path / name)]
    files = {}
    for name in names:
        digest = digest_file(folder / name)
        if digest is None:
            raise RunError(f"cannot read {folder / name}, which was just written")
        files[name] = SharedFile(digest.size, digest.sha256)
    return files


def push_run(run: Path, request: HubRequest, card: CardOptions, model: BasePredictor | None = None) -> HubCommit:
    """Push the shared folder of a run to the hub.

    Args:
        run: Run folder, folder of an ensemble, or shared folder.
        request: Repository, message and token.
        card: Options of the card.
        model: Model in memory, as in `ShareRequest`.

    Raises:
        InputError: As in `write_shared_folder` and `push_folder`.
    """
    with TemporaryDirectory(prefix="pellucid-") as temporary:
        folder = Path(temporary) / "model"
        write_shared_folder(ShareRequest(run, request.repo_id, card, model), folder)
        return push_folder(folder, request)
