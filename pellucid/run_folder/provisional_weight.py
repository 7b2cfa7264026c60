"""The weight of the pair n-gram model in predictions until the end of the training, which chooses it."""

from pellucid.run_folder.identity import ModelIdentity
from pellucid.run_folder.log import RunLog

WEIGHT_BEFORE_VALIDATION = 1.0
"""Before the first validation, the network is hardly trained: the pair n-gram model alone ranks the outputs."""
PROVISIONAL_WEIGHT = 0.5
"""Weight beside a network that is as good, and if the log does not tell: the weights that measured trainings chose are
0.35 to 0.55."""


def provisional_weight(identity: ModelIdentity, log: RunLog) -> float:
    """Return the weight of the pair n-gram model in predictions as long as the training has not chosen one.

    For the exact match n of the network on the validation set, at the validation of the saved model, and p of the pair
    n-gram model alone, it is 1 − min(1, n / p) / 2, rounded to two digits. It falls from 1, for a network
    without a correct output, to `PROVISIONAL_WEIGHT`, for one at least as good as the pair n-gram model.
    docs/ablations.md has the measurements.

    Args:
        identity: Identity of the saved model.
        log: Log of the training.
    """
    if not identity.is_validated:
        return WEIGHT_BEFORE_VALIDATION
    best = [record for record in (*log.all("validated"), log.last_best) if record is not None and record["best"]]
    validated = next((record for record in reversed(best) if str(record["update"]) == identity.update), None)
    fitted = log.first("pair_ngram")
    if validated is None or fitted is None or validated["exact_match"] >= fitted["exact_match"]:
        return PROVISIONAL_WEIGHT
    ratio: float = validated["exact_match"] / fitted["exact_match"]
    return round(1 - (1 - PROVISIONAL_WEIGHT) * ratio, 2)
