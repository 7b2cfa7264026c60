# %% [markdown]
# # 6. Exercises
#
# [All lessons](README.md) · [this page as a notebook](6-exercises.ipynb) · before: [5. Longer](5-longer.md)
#
# **What happens if one part is exchanged for another?**
#
# Here are the exercises of 2015 and 2016, each with a short run and an answer. Try to answer each question before you
# run its cell. The runs are shorter than those of the lessons, and each has one seed: they show directions, not
# decimals. Exercises on the curve's teeth and on accuracy by position are in
# [lesson 2](2-bottleneck.md).

# %%
SAMPLES = 100_000
LOOKING = 60_000
EVERY = 10_000
VALIDATION = 2_000

# %%
import numpy as np
from IPython.display import Image

from pellucid.recipes.digits.networks import DigitsArchitecture
from pellucid.recipes.digits.report import DigitsRuns, curve_figure, position_figure
from pellucid.recipes.digits.studies import LEARNING_RATES
from pellucid.recipes.digits.training import DigitsResult, DigitsStudy, DigitsTrainingPlan, run_study
from pellucid.reporting.figures import to_png

plan = DigitsTrainingPlan(SAMPLES, eval_interval=EVERY, validation_samples=VALIDATION)


def trained(name: str, design: DigitsArchitecture, plan: DigitsTrainingPlan = plan) -> DigitsResult:
    """Train once, and tell."""
    run = run_study(DigitsStudy(name, design, plan, seed=1))
    print(
        f"{name:24} {run.parameters:6,} parameters, {100 * run.accuracy:5.1f} % of the symbols, "
        f"{100 * run.final.exact_match:5.1f} % of the sequences"
    )
    return run


def groups(*runs: DigitsResult) -> list[DigitsRuns]:
    """Each run as a line of a picture."""
    return [DigitsRuns(run.name, [run]) for run in runs]


# %% [markdown]
# ## 1. A bidirectional encoder
#
# *A second GRU reads the input from its end. How should its states join those of the first, and what will it change
# where there is no attention?*

# %%
forward = trained("forward", DigitsArchitecture())
both = [
    trained(f"bidirectional, {merge}", DigitsArchitecture(bidirectional=True, merge=merge))
    for merge in ("concatenate", "sum", "product")
]

# %%
figure = position_figure(groups(forward, *both))
Image(to_png(figure, 100), alt="Accuracy by position: unidirectional and bidirectional, merged in three ways")

# %% [markdown]
# The code now holds two last states: that of the GRU that has just read the last word, and that of the GRU that has
# just read the first. So the first digits gain a little; the middle is far from both. Concatenated, each has ten
# numbers of its own; added or multiplied, they share ten. It is still a bottleneck. (The original snippet took the
# backward GRU's state at the last letter, where it has read one letter; its answer stands at the first.)
#
# ## 2. Targets of unequal length
#
# *Let rows have one to twenty digits. Short targets are padded with 0, which is also the digit 0. What does a network
# learn from a cost that counts padding?*

# %%
varying = plan._replace(digits=(1, 20))
masked = trained("mask in the cost", DigitsArchitecture(), varying._replace(masked=True))
unmasked = trained("no mask in the cost", DigitsArchitecture(), varying)
padding = 1 - varying.draw_samples(VALIDATION, np.random.default_rng(1)).target_masks.mean()
print(f"{100 * padding:.0f} % of the places in the targets are padding")

# %%
figure = position_figure(groups(masked, unmasked))
Image(
    to_png(figure, 100), alt="Accuracy by position of targets of unequal length, with the mask in the cost and without"
)

# %% [markdown]
# Accuracy counts only symbols that are there, in both. Without the mask much of what the network is paid for is
# writing zeros behind the end: late places of the target are mostly padding, and it writes 0 there where a digit should
# stand. With the mask it is paid for digits alone.
#
# ## 3. Symbols given or learned
#
# *The notebook freezes its embedding at one-hot and suggests to remove that line. What can 27 × 27 more parameters
# add?*

# %%
learned = trained("learned embedding", DigitsArchitecture(embedding="learned"))

# %%
figure = curve_figure(groups(forward, learned), [], SAMPLES)
Image(to_png(figure, 100), alt="Accuracy over the samples: one-hot and learned embedding")

# %% [markdown]
# Nothing that could not be said before: the GRU's own matrix already gives each letter any row it likes, and a product
# of two matrices is a matrix. What changes is the path of the training, since both are moved at once. Here both paths
# end at the same place.
#
# ## 4. Other optimizers
#
# *Adam with 0.005 is the authors' choice. What do simpler rules do on the same network, each with the best of three
# rates?*

# %%
optimizers = [
    trained(f"{name}, rate {rate:g}", DigitsArchitecture(), plan._replace(optimizer=name, learning_rate=rate))
    for name, (rate, *_) in LEARNING_RATES.items()
]

# %%
figure = curve_figure(groups(*optimizers), [], SAMPLES)
Image(to_png(figure, 100), alt="Accuracy over the samples with six optimizers")

# %%
best, worst = max(optimizers, key=lambda run: run.accuracy), min(optimizers, key=lambda run: run.accuracy)
print(f"best: {best.name}, {100 * best.accuracy:.1f} %; worst: {worst.name}, {100 * worst.accuracy:.1f} %")

# %% [markdown]
# Gradients of a recurrent network differ in size by orders of magnitude (lesson 1). Rules that scale each parameter by
# its own gradients do not mind: Adam, RMSprop, Adagrad. Plain steps, with momentum or without, must use one rate for
# all parameters, and stay near the floor. Adadelta was made to need no rate; here it wants one of ten, for its first
# steps are tiny.
#
# ## 5. Other cells
#
# *The lessons take a GRU because it has one state and is faster. Is an LSTM better?*

# %%
lstm = trained("LSTM", DigitsArchitecture(cell="lstm"))
figure = position_figure(groups(forward, lstm))
Image(to_png(figure, 100), alt="Accuracy by position with a GRU and with an LSTM")

# %% [markdown]
# An LSTM has one gate more and a second state. Through a code of ten numbers, that helps or harms only a little: the
# code is the limit, not the cell.
#
# ## 6. Larger weights
#
# *Weights start from N(0, 0.1). What if those of the attention network start at a size that keeps the size of what
# passes through?*

# %%
looking = DigitsTrainingPlan(LOOKING, eval_interval=max(LOOKING // 10, 1), validation_samples=VALIDATION)
narrow = trained("N(0, 0.1)", DigitsArchitecture("attention"), looking)
scaled = trained("scaled by size", DigitsArchitecture("attention", initial="scaled"), looking)

# %%
figure = curve_figure(groups(narrow, scaled), [], LOOKING)
Image(to_png(figure, 100), alt="Accuracy of the attention network over the samples, with two starts")

# %% [markdown]
# Not much: both climb side by side, and where they end they differ by less than the authors' two runs. So small first
# weights may explain the wait at the very beginning (lesson 3), but not the long climb. Lesson 4 found what does: too
# few steps, and too small ones.
#
# ## Try it
#
# ```sh
# pellucid recipe list
# ```
#
# names a recipe for each exercise, which trains longer and with as many seeds as you like; for example
# `pellucid recipe digits-optimizers --seeds 3 --out runs/optimizers`. In the notebook, put `Design("attention")` into
# the second exercise: what does the mask do there?
