"""Registration of the functions behind `save_pretrained` and `push_to_hub`, which are imported on first use."""

from pathlib import Path
from typing import TYPE_CHECKING

from pellucid.decoding.model_sharing import CardOptions, HubCommit, HubRequest, ModelSharing, register_sharing
from pellucid.dependencies import missing_packages_as_errors
from pellucid.errors import ArgumentError

if TYPE_CHECKING:
    from pellucid.decoding.base_predictor import BasePredictor


def register_model_sharing() -> None:
    """Make `save_pretrained` and `push_to_hub` of predictors use this package."""
    register_sharing(ModelSharing(_save_model, _push_model))


def _save_model(model: "BasePredictor", folder: Path, card: CardOptions) -> None:
    """Write the shared folder of a model."""
    with missing_packages_as_errors("save_pretrained"):
        from pellucid.sharing.shared_folder import ShareRequest, write_shared_folder

    write_shared_folder(ShareRequest(_run_of(model), folder.resolve().name, card, model), folder)


def _push_model(model: "BasePredictor", request: HubRequest, card: CardOptions) -> HubCommit:
    """Push a model to the hub."""
    with missing_packages_as_errors("push_to_hub"):
        from pellucid.sharing.hub import check_repository_id, require_hub
        from pellucid.sharing.shared_folder import push_run

    require_hub("push_to_hub")
    check_repository_id(request.repo_id)
    return push_run(_run_of(model), request, card, model)


def _run_of(model: "BasePredictor") -> Path:
    """Return the folder from which a model was loaded; raise `ArgumentError` if there is none."""
    if not model.folder:
        raise ArgumentError(
            "model: expected one that was loaded from a run folder, got one of no folder or of several: save it by "
            "pellucid.save(model, folder), load that folder, and share it"
        )
    return Path(model.folder)
