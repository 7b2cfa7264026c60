"""The learning rate as a function of how much of the training has passed."""

import math

from pellucid.config import TrainingConfig


def learning_rate(config: TrainingConfig, passed: float, plateau_factor: float) -> float:
    """The rate at share `passed` (0 to 1) of the longest training.

    During the warm-up (w = its share) the rate is r · passed / w. After it, with x = (passed − w) / (1 − w):

        constant              r
        cosine                r · (1 + cos πx) / 2           Loshchilov & Hutter 2017, section 3, one cycle
        inverse-square-root   r · √(w / passed)              Vaswani et al. 2017, section 5.3; shares of 0.001 at least
        plateau               r · plateau_factor             the factor falls when the metric stays (see the loop)
    """
    warmup = config.warmup
    if passed < warmup:
        return config.learning_rate * passed / warmup
    match config.schedule:
        case "constant":
            scale = 1.0
        case "cosine":
            scale = (1 + math.cos(math.pi * min(1.0, (passed - warmup) / (1 - warmup)))) / 2
        case "inverse-square-root":
            scale = math.sqrt(max(warmup, 1e-3) / max(passed, 1e-3))
        case "plateau":
            scale = plateau_factor
    return config.learning_rate * scale
