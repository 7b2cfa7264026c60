# %% [markdown]
# # 6. Exercises
#
# [All lessons](README.md) · [this page as a notebook](6-exercises.ipynb) · previous: [5. Longer inputs](5-longer.md)
#
# **What is the effect of each component?**
#
# These are the exercises of 2015 and 2016, each with a short training and an answer. Try to answer each question before
# you run its cell. The trainings are shorter than those of the lessons and have one seed: they show tendencies, not
# exact values. The exercises on the sawtooth of the curve and on accuracy by position are in
# [lesson 2](2-bottleneck.md).

# %%
SAMPLES = 100_000
ATTENTION_SAMPLES = 60_000
EVAL_INTERVAL = 10_000
VALIDATION_SAMPLES = 2_000

# %%
import numpy as np
from IPython.display import Image

from pellucid.recipes.digits.experiments import LEARNING_RATES
from pellucid.recipes.digits.networks import DigitsArchitecture
from pellucid.recipes.digits.report import DigitsRuns, curve_figure, position_figure
from pellucid.recipes.digits.training import DigitsExperiment, DigitsResult, DigitsTrainingPlan, run_experiment
from pellucid.reporting.figures import to_png

plan = DigitsTrainingPlan(SAMPLES, eval_interval=EVAL_INTERVAL, validation_samples=VALIDATION_SAMPLES)


def train(name: str, architecture: DigitsArchitecture, plan: DigitsTrainingPlan = plan) -> DigitsResult:
    """Train a network and print its accuracy.

    Args:
        name: Name of the run.
        architecture: Architecture of the network.
        plan: Hyperparameters.
    """
    result = run_experiment(DigitsExperiment(name, architecture, plan, seed=1))
    print(
        f"{name:28} {result.parameters:6,} parameters, symbol accuracy {100 * result.accuracy:5.1f} %, "
        f"exact match {100 * result.final.exact_match:5.1f} %"
    )
    return result


def groups(*results: DigitsResult) -> list[DigitsRuns]:
    """Return each result as a line of a figure."""
    return [DigitsRuns(result.name, [result]) for result in results]


# %% [markdown]
# ## 1. A bidirectional encoder
#
# *A second GRU reads the input backwards. How can its states be merged with those of the first, and what is the effect
# without attention?*

# %%
forward = train("unidirectional", DigitsArchitecture())
bidirectional = [
    train(f"bidirectional, {merge}", DigitsArchitecture(bidirectional=True, merge=merge))
    for merge in ("concatenate", "sum", "product")
]

# %%
figure = position_figure(groups(forward, *bidirectional))
Image(to_png(figure, 100), alt="Accuracy by position: unidirectional and bidirectional, merged in three ways")

# %% [markdown]
# The code now merges two last states: that of the forward GRU, which has read the last word, and that of the backward
# GRU, which has read the first word. So the accuracy of the first digits rises a little; the middle is far from both.
# Concatenated states have ten numbers each; with a sum or a product they share ten. The code is still a bottleneck.
# (The original snippet takes the backward GRU's state at the last letter, where it has read one letter; its final state
# is at the first letter.)
#
# ## 2. Targets of different lengths
#
# *Inputs have one to twenty digits. Short targets are padded with 0, which is also the digit 0. What does a network
# learn from a loss that includes padding?*

# %%
varying = plan._replace(digits=(1, 20))
masked = train("masked loss", DigitsArchitecture(), varying._replace(masked=True))
unmasked = train("unmasked loss", DigitsArchitecture(), varying)
padding = 1 - varying.draw_samples(VALIDATION_SAMPLES, np.random.default_rng(1)).target_masks.mean()
print(f"{100 * padding:.0f} % of the target positions are padding")

# %%
figure = position_figure(groups(masked, unmasked))
Image(to_png(figure, 100), alt="Accuracy by position of targets of different lengths, with masked and unmasked loss")

# %% [markdown]
# Both accuracies exclude padding. Without the mask a large part of the loss rewards zeros after the end: late target
# positions are mostly padding, and the network predicts 0 there instead of a digit. With the mask only real symbols
# count.
#
# ## 3. One-hot or learned embeddings
#
# *The notebook freezes its embedding at one-hot and suggests removing that line. What is the effect of 27 × 27 more
# parameters?*

# %%
learned = train("learned embedding", DigitsArchitecture(embedding="learned"))

# %%
figure = curve_figure(groups(forward, learned), [], SAMPLES)
Image(to_png(figure, 100), alt="Accuracy over the samples: one-hot and learned embedding")

# %% [markdown]
# The capacity does not change: the GRU's input matrix already gives each letter its own row, and a product of two
# matrices is a matrix. The optimization changes, since both matrices are updated. Here both trainings have the same
# final accuracy.
#
# ## 4. Other optimizers
#
# *The authors use Adam with a learning rate of 0.005. How do simpler optimizers compare, each with the best of three
# learning rates?*

# %%
optimizers = [
    train(f"{name}, learning rate {rate:g}", DigitsArchitecture(), plan._replace(optimizer=name, learning_rate=rate))
    for name, (rate, *_) in LEARNING_RATES.items()
]

# %%
figure = curve_figure(groups(*optimizers), [], SAMPLES)
Image(to_png(figure, 100), alt="Accuracy over the samples with six optimizers")

# %%
best, worst = (
    max(optimizers, key=lambda result: result.accuracy),
    min(optimizers, key=lambda result: result.accuracy),
)
print(f"best: {best.name}, {100 * best.accuracy:.1f} %; worst: {worst.name}, {100 * worst.accuracy:.1f} %")

# %% [markdown]
# Gradients of a recurrent network differ in size by orders of magnitude (lesson 1). Optimizers that scale each
# parameter's update by its own gradients are insensitive to this: Adam, RMSprop, Adagrad. Gradient descent, with or
# without momentum, has one rate for all parameters and stays near chance. Adadelta was designed to need no learning
# rate; here it needs a rate of ten, since its first updates are tiny.
#
# ## 5. Other cells
#
# *The lessons use a GRU because it has one state and is faster. Is an LSTM better?*

# %%
lstm = train("LSTM", DigitsArchitecture(cell="lstm"))
figure = position_figure(groups(forward, lstm))
Image(to_png(figure, 100), alt="Accuracy by position with a GRU and with an LSTM")

# %% [markdown]
# An LSTM has one more gate and a second state. With a code of ten numbers it is not better: the code is the limit, not
# the cell.
#
# ## 6. Larger initial weights
#
# *Weights start from N(0, 0.1). What is the effect of an initialization of the attention network that preserves the
# scale of activations?*

# %%
attention_plan = DigitsTrainingPlan(
    ATTENTION_SAMPLES, eval_interval=max(ATTENTION_SAMPLES // 10, 1), validation_samples=VALIDATION_SAMPLES
)
narrow = train("N(0, 0.1)", DigitsArchitecture("attention"), attention_plan)
scaled = train("scaled initialization", DigitsArchitecture("attention", initialization="scaled"), attention_plan)

# %%
figure = curve_figure(groups(narrow, scaled), [], ATTENTION_SAMPLES)
Image(to_png(figure, 100), alt="Accuracy of the attention network over the samples, with two initializations")

# %% [markdown]
# The effect is small: both accuracies rise in parallel, and their final difference is smaller than that of the authors'
# two runs. So small initial weights may explain the late start (lesson 3), but not the slow rise. Lesson 4 has its
# cause: too few updates, and too small ones.
#
# ## Try it
#
# ```sh
# pellucid recipe list
# ```
#
# lists a recipe for each exercise, with longer trainings and any number of seeds; for example
# `pellucid recipe digits-optimizers --seeds 3 --run runs/optimizers`. In the notebook, use
# `DigitsArchitecture("attention")` in the second exercise: what is the effect of the mask there?
