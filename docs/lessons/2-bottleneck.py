# %% [markdown]
# # 2. The bottleneck
#
# [All lessons](README.md) · [this page as a notebook](2-bottleneck.ipynb) · before: [1. The data](1-data.md) · next:
# [3. Attention](3-attention.md)
#
# **What is left of twenty digits when they must pass through ten numbers?**
#
# The first network of the blog and the notebook is an encoder-decoder without attention. A GRU reads the letters; its
# last state, ten numbers, is the *code*; a second GRU of ten units writes from it. No symbol that was written is fed
# back, so given the code the digits are written independently of each other.

# %%
SAMPLES = 300_000
LONG = 900_000
EVERY = 5_000
VALIDATION = 5_000
PROBED = 20_000

# %%
import numpy as np
from IPython.display import Image

from pellucid.errors import DataError
from pellucid.recipes.digits.analysis import probe_codes
from pellucid.recipes.digits.networks import DigitsArchitecture
from pellucid.recipes.digits.report import (
    POSITIONS_REPEAT,
    DigitsRuns,
    curve_figure,
    load_reference_curves,
    position_figure,
)
from pellucid.recipes.digits.studies import roughness
from pellucid.recipes.digits.training import DigitsStudy, DigitsTrainingPlan, run_study, train_network
from pellucid.recipes.recipe import data_folder
from pellucid.reporting.figures import to_png

# %% [markdown]
# ## Two ways to hand over the code
#
# The code can be the decoder's *input* at every step, or its *first state*:
#
# * repeated: h_t = GRU(code, h_{t−1}), h_0 = 0
# * first state: h_t = GRU(nothing, h_{t−1}), h_0 = code
#
# The authors named both and built the first. Everything is as they had it: weights from N(0, 0.1), batches of 100
# fresh samples, Adam with a rate of 0.005, gradients clipped. Accuracy counts symbols, the `#` among them.

# %%
plan = DigitsTrainingPlan(SAMPLES, eval_interval=EVERY, validation_samples=VALIDATION)
network, repeated = train_network(DigitsStudy("repeated", DigitsArchitecture("repeat"), plan, seed=1))
first_state = run_study(DigitsStudy("first state", DigitsArchitecture("initialize"), plan, seed=1))
for run in (repeated, first_state):
    print(
        f"{run.name}: {run.parameters:,} parameters, {100 * run.accuracy:.1f} % of the symbols, "
        f"{100 * run.final.exact_match:.1f} % of the sequences"
    )

# %%
try:
    theirs = load_reference_curves(data_folder(), "repeat")
except DataError:
    theirs = []
    print("The authors' curves are not at hand; the picture does without them.")
groups = [DigitsRuns(run.name, [run]) for run in (repeated, first_state)]
Image(to_png(curve_figure(groups, theirs, SAMPLES), 100), alt="Validation accuracy without attention, over the samples")

# %% [markdown]
# Guessing gives 0.143. The repeated code runs along the authors' curves, not far above that. As a first state the code
# does worse: nothing reminds the decoder of it. More training helps little: the blog saw ten times as many samples and
# reached 0.36.
#
# ## Which digits are right?

# %%
figure = position_figure(groups, POSITIONS_REPEAT, "the blog, after 3,000,000 samples")
Image(to_png(figure, 100), alt="Accuracy by position without attention: high at the ends, near chance in the middle")

# %%
for run in (repeated, first_state):
    right = np.array(run.final.per_position)
    print(
        f"{run.name}: first three digits {right[:3].mean():.2f}, middle ten {right[5:15].mean():.2f}, "
        f"last three {right[17:20].mean():.2f}, the end {right[20]:.2f}"
    )

# %% [markdown]
# The `#` is always in the same place and is easy. With the repeated code the last digits come next: they were read
# last, and the code still holds them. The other arm of the blog's U, the first digits, came only with ten times the
# samples. With the code as first state it is the first digits that are best: they are written while the decoder's
# state is still close to the code.
#
# Is it the distance between a letter and the code that decides? Train the same network on inputs that are read from
# their end to their beginning. Now the first digits are nearest to the code, and the shape should turn round.

# %%
backwards_plan = plan._replace(reverse_inputs=True)
backwards_network, backwards = train_network(
    DigitsStudy("read backwards", DigitsArchitecture("repeat"), backwards_plan, seed=1)
)
turned = [DigitsRuns("read forwards", [repeated]), DigitsRuns("read backwards", [backwards])]
Image(to_png(position_figure(turned), 100), alt="Accuracy by position, for inputs read forwards and backwards")

# %%
for name, run in (("forwards", repeated), ("backwards", backwards)):
    right = np.array(run.final.per_position)
    print(f"read {name}: first five digits {right[:5].mean():.3f}, last five {right[15:20].mean():.3f}")

# %% [markdown]
# The high arm moves from the last digits to the first, if not to the same height.
#
# ## What does the code hold?
#
# Perhaps the code holds more than the decoder can unpack. A *probe* asks it directly: a softmax regression from the
# ten numbers to the digit at each place, fitted on samples of its own. If the probe reads what the decoder misses, the
# decoder is to blame; if it reads no more, the code is.

# %%
generator = np.random.default_rng(7)
probed = probe_codes(network, *(plan.draw_samples(PROBED, generator) for _ in range(2)))
reading = repeated._replace(final=repeated.final._replace(per_position=probed))
figure = position_figure([DigitsRuns("written by the decoder", [repeated]), DigitsRuns("read by the probe", [reading])])
Image(to_png(figure, 100), alt="Accuracy by position of the decoder and of the probe")

# %%
written, held = np.array(repeated.final.per_position[:20]), np.array(probed[:20])
print(f"digits right: {written.mean():.3f} by the decoder, {held.mean():.3f} by the probe")
print(f"over the places the two go together with a correlation of {np.corrcoef(written, held)[0, 1]:.2f}")

# %% [markdown]
# The probe finds digits where the decoder finds digits. What is not written is not there, or lies in the code in a way
# that no straight line separates: it is the code that is short of digits, not the decoder that is clumsy.
#
# ## Why does the curve of a long run look like a jig-saw?
#
# The notebook asks this of its own picture: after some hundred thousand samples the accuracy jumps up and down. The
# validation samples are the same each time, so it is the network that moves. One suspect is the rate: at 0.005 an
# update may overshoot. The test is the same training with a rate that falls to zero along half a cosine.

# %%
long = DigitsTrainingPlan(LONG, eval_interval=EVERY, validation_samples=VALIDATION)
constant = run_study(DigitsStudy("constant rate", DigitsArchitecture(), long, seed=1))
falling = run_study(DigitsStudy("falling rate", DigitsArchitecture(), long._replace(decay="cosine"), seed=1))
longer = [DigitsRuns(run.name, [run]) for run in (constant, falling)]
Image(
    to_png(curve_figure(longer, theirs, LONG), 100), alt="Accuracy over a long training, with two courses of the rate"
)

# %%
for run in (constant, falling):
    print(
        f"{run.name}: ends at {100 * run.accuracy:.1f} %; in the last third the accuracy changes by "
        f"{100 * roughness(run):.2f} points from one validation to the next"
    )

# %% [markdown]
# The teeth go with the rate: the same network, the same samples in the same order, and the curve is smooth. Smooth is
# not better, though. The rate explains the teeth; the level is the code's.
#
# ## What to remember
#
# A code of fixed size is a bottleneck. Training and rates move the ends of the curve a little; the middle of the input
# stays lost. The cure is not to squeeze the input through one vector at all: [lesson 3](3-attention.md).
#
# ## Try it
#
# ```sh
# pellucid recipe digits-positions --out runs/positions
# ```
#
# In the notebook, change `digits=(20, 20)` in the plan to `(5, 5)`: how many digits fit through ten numbers?
