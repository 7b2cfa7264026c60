"""What each option of the network and of its training is worth: settings beside the defaults, on three languages."""

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from pellucid.recipes.experiment_report import run_reference
from pellucid.recipes.experiments import Experiment, Reference
from pellucid.recipes.g2p_sigmorphon2020 import language_pairs
from pellucid.recipes.recipe import Request, recipe_config

LANGUAGES = ("arm", "bul", "gre")
"""Of the tested languages, three in which the defaults err often enough to see a difference."""
DEFAULT = "default"
SETTINGS: Mapping[str, Mapping[str, Mapping[str, Any]]] = {
    DEFAULT: {},
    "no-dropout": {"encoder": {"dropout": 0.0}, "decoder": {"dropout": 0.0}},
    "variational": {"encoder": {"dropout_mask": "sequence"}, "decoder": {"dropout_mask": "sequence"}},
    "embedding-dropout": {"encoder": {"embedding_dropout": 0.1}, "decoder": {"embedding_dropout": 0.1}},
    "recurrent-dropout": {"encoder": {"recurrent_dropout": 0.2}, "decoder": {"recurrent_dropout": 0.2}},
    "layer-normalization": {
        "encoder": {"layer_normalization": "outputs"},
        "decoder": {"layer_normalization": "outputs"},
    },
    "two-layers": {"encoder": {"num_layers": 2}, "decoder": {"num_layers": 2}},
    "residual": {"encoder": {"num_layers": 2, "residual": True}, "decoder": {"num_layers": 2, "residual": True}},
    "tied": {"decoder": {"tie_embeddings": True}},
    "lstm": {"encoder": {"cell": "lstm"}, "decoder": {"cell": "lstm"}},
    "step-then-attend": {"decoder": {"order": "step-then-attend"}},
    "input-feeding": {"decoder": {"order": "step-then-attend", "input_feeding": True}},
    "four-heads": {"attention": {"num_heads": 4}},
    "general-score": {"attention": {"type": "general"}},
    "no-smoothing": {"training": {"label_smoothing": 0.0}},
    "scheduled-sampling": {"training": {"scheduled_sampling": "linear"}},
    "mean-weights": {"training": {"weight_averaging": "ema", "ema_decay": 0.99}},
    "consistency": {"training": {"rdrop_alpha": 1.0}},
}
"""What each changes of the defaults, and nothing else: neither rate nor length of training is sought anew for it."""
AGAINST = {"residual": "two-layers", "input-feeding": "step-then-attend"}
"""What a setting is held against where that is not the default."""
INTRODUCTION = """Words to phones of three languages of SIGMORPHON 2020, as the recipe g2p-sigmorphon2020 trains
them, but with one option changed in each row: the same words, batches, rate and length of training, and the same
seed. So a row says what it is worth to switch the option on, and not what could be made of it by seeking its best
surroundings.

Residual is two layers, too, so that it is held against two-layers; input feeding likewise against step-then-attend."""


def run(request: Request) -> Iterator[str]:
    """Train and judge every setting."""
    return run_reference(reference(), request)


def reference() -> Reference:
    """The recipe."""
    data = recipe_config("g2p-ablations", {}).data
    return Reference(
        name="g2p-ablations",
        title="What each option is worth",
        introduction=INTRODUCTION,
        origin="task 1 of SIGMORPHON 2020 (github.com/sigmorphon/2020, task1/data)",
        measure="wer",
        experiments=[
            Experiment(
                name=f"{setting}-{language}",
                pairs=partial(language_pairs, language, data),
                settings=changed,
                setting=setting,
                beside="" if setting == DEFAULT else f"{AGAINST.get(setting, DEFAULT)}-{language}",
            )
            for setting, changed in SETTINGS.items()
            for language in LANGUAGES
        ],
        folder="g2p-sigmorphon2020",
    )
