# %% [markdown]
# # 2. The bottleneck
#
# [All lessons](README.md) · [this page as a notebook](2-bottleneck.ipynb) · previous: [1. The data](1-data.md) · next:
# [3. Attention](3-attention.md)
#
# **How much of twenty digits does a code of ten numbers preserve?**
#
# The first network of the blog and the notebook is an encoder-decoder without attention. A GRU encodes the letters; its
# last state, ten numbers, is the *code*; a second GRU of ten units decodes it. No output symbol is fed back, so the
# digits are conditionally independent given the code.

# %%
SAMPLES = 300_000
LONG_SAMPLES = 900_000
EVAL_INTERVAL = 5_000
VALIDATION_SAMPLES = 5_000
PROBE_SAMPLES = 20_000

# %%
import numpy as np
from IPython.display import Image

from pellucid.errors import DataError
from pellucid.recipes.digits.analysis import probe_codes
from pellucid.recipes.digits.experiments import roughness
from pellucid.recipes.digits.networks import DigitsArchitecture
from pellucid.recipes.digits.report import (
    POSITIONS_REPEAT,
    DigitsRuns,
    curve_figure,
    load_reference_curves,
    position_figure,
)
from pellucid.recipes.digits.training import DigitsExperiment, DigitsTrainingPlan, run_experiment, train_network
from pellucid.recipes.published_data import data_folder
from pellucid.reporting.figures import to_png

# %% [markdown]
# ## Two uses of the code
#
# The code can be the decoder's *input* at every step, or its *initial state*:
#
# * input: $s_t = \mathrm{GRU}(\mathrm{code}, s_{t-1})$, $s_0 = 0$
# * initial state: $s_t = \mathrm{GRU}(\mathrm{nothing}, s_{t-1})$, $s_0 = \mathrm{code}$
#
# $s_t$ is the decoder state at target position $t$.
#
# The authors name both and implement the first. All hyperparameters are theirs: weights from N(0, 0.1), batches of 100
# new samples, Adam with a learning rate of 0.005, gradient clipping. Symbol accuracy includes the `#`.

# %%
plan = DigitsTrainingPlan(SAMPLES, eval_interval=EVAL_INTERVAL, validation_samples=VALIDATION_SAMPLES)
network, code_input = train_network(DigitsExperiment("code as input", DigitsArchitecture("repeat"), plan, seed=1))
initial_state = run_experiment(
    DigitsExperiment("code as initial state", DigitsArchitecture("initialize"), plan, seed=1)
)
for run in (code_input, initial_state):
    print(
        f"{run.name}: {run.parameters:,} parameters, symbol accuracy {100 * run.accuracy:.1f} %, "
        f"exact match {100 * run.final.exact_match:.1f} %"
    )

# %%
try:
    references = load_reference_curves(data_folder(), "repeat")
except DataError:
    references = []
    print("The authors' curves are missing; the figure is drawn without them.")
groups = [DigitsRuns(run.name, [run]) for run in (code_input, initial_state)]
figure = curve_figure(groups, references, SAMPLES)
Image(to_png(figure, 100), alt="Validation accuracy without attention, over the samples")

# %% [markdown]
# Chance is 0.143. The network with the code as input follows the authors' curves, not far above chance. The code as
# initial state is worse: the decoder receives the code only once. More training does not solve the problem: the blog
# used ten times as many samples and reached 0.36.
#
# ## Accuracy by position

# %%
figure = position_figure(groups, POSITIONS_REPEAT, "the blog, after 3,000,000 samples")
Image(to_png(figure, 100), alt="Accuracy by position without attention: high at the ends, near chance in the middle")

# %%
for run in (code_input, initial_state):
    accuracies = np.array(run.final.per_position)
    print(
        f"{run.name}: first three digits {accuracies[:3].mean():.2f}, middle ten {accuracies[5:15].mean():.2f}, "
        f"last three {accuracies[17:20].mean():.2f}, end symbol {accuracies[20]:.2f}"
    )

# %% [markdown]
# The `#` is always at the same position and is easy. With the code as input the last digits have the next highest
# accuracy: they were read last, and the code still encodes them. The blog also has a high accuracy of the first digits,
# but only after ten times as many samples. With the code as initial state the first digits have the highest accuracy:
# they are decoded while the decoder's state is still similar to the code.
#
# Is the distance between a letter and the code the cause? The same network is trained on reversed inputs. Now the first
# digits are the nearest to the code, and the curve should be mirrored.

# %%
reversed_plan = plan._replace(reverse_inputs=True)
reversed_network, reversed_input = train_network(
    DigitsExperiment("reversed input", DigitsArchitecture("repeat"), reversed_plan, seed=1)
)
directions = [DigitsRuns("input in order", [code_input]), DigitsRuns("reversed input", [reversed_input])]
Image(to_png(position_figure(directions), 100), alt="Accuracy by position, for inputs in order and reversed")

# %%
for name, run in (("input in order", code_input), ("reversed input", reversed_input)):
    accuracies = np.array(run.final.per_position)
    print(f"{name}: first five digits {accuracies[:5].mean():.3f}, last five {accuracies[15:20].mean():.3f}")

# %% [markdown]
# The high accuracy moves from the last digits to the first, though not to the same value.
#
# ## Content of the code
#
# The code may encode more than the decoder can decode. A *probe* measures its content directly: a softmax regression
# from the ten numbers to the digit at each position, fitted on other samples. If the probe has a higher accuracy than
# the decoder, the decoder is the limit; otherwise the code is.

# %%
generator = np.random.default_rng(7)
probe_accuracy = probe_codes(network, *(plan.draw_samples(PROBE_SAMPLES, generator) for _ in range(2)))
probe_result = code_input._replace(final=code_input.final._replace(per_position=probe_accuracy))
figure = position_figure([DigitsRuns("decoder", [code_input]), DigitsRuns("probe", [probe_result])])
Image(to_png(figure, 100), alt="Accuracy by position of the decoder and of the probe")

# %%
decoder, probe = np.array(code_input.final.per_position[:20]), np.array(probe_accuracy[:20])
print(f"mean accuracy of the digits: {decoder.mean():.3f} by the decoder, {probe.mean():.3f} by the probe")
print(f"correlation of the two over positions: {np.corrcoef(decoder, probe)[0, 1]:.2f}")

# %% [markdown]
# The probe predicts digits at the positions where the decoder predicts them. The other digits are not in the code, or
# not in a linearly separable form: the code is the limit, not the decoder.
#
# ## Sawtooth in the curve of a long run
#
# The notebook asks why the accuracy of its long run oscillates after some hundred thousand samples. The validation
# samples are always the same, so the network itself changes. The learning rate may be the cause: at 0.005 an update may
# overshoot. The test is the same training with cosine decay of the learning rate to zero.

# %%
long_plan = DigitsTrainingPlan(LONG_SAMPLES, eval_interval=EVAL_INTERVAL, validation_samples=VALIDATION_SAMPLES)
constant = run_experiment(DigitsExperiment("constant learning rate", DigitsArchitecture(), long_plan, seed=1))
decaying = run_experiment(
    DigitsExperiment("cosine decay", DigitsArchitecture(), long_plan._replace(decay="cosine"), seed=1)
)
groups = [DigitsRuns(run.name, [run]) for run in (constant, decaying)]
figure = curve_figure(groups, references, LONG_SAMPLES)
Image(to_png(figure, 100), alt="Accuracy over a long training, with a constant and a decaying learning rate")

# %%
for run in (constant, decaying):
    print(
        f"{run.name}: final accuracy {100 * run.accuracy:.1f} %; in the last third the accuracy changes by "
        f"{100 * roughness(run):.2f} points from one validation to the next"
    )

# %% [markdown]
# The oscillation disappears with the decay, for the same network and the same samples in the same order. The smooth
# curve is not higher: the learning rate explains the oscillation, and the size of the code explains the level.
#
# ## Summary
#
# A code of fixed size is a bottleneck. Training and learning rates change the accuracy at the ends of the input; the
# middle of the input is lost. The solution is to keep more than one vector of the input:
# [lesson 3](3-attention.md).
#
# ## Try it
#
# ```sh
# pellucid recipe digits-positions --run runs/positions
# ```
#
# In the notebook, add `digits=(5, 5)` to the plan: how many digits can ten numbers encode?
