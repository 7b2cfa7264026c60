# %% [markdown]
# # 3. Attention
#
# [All lessons](README.md) · [this page as a notebook](3-attention.ipynb) · previous:
# [2. The bottleneck](2-bottleneck.md) · next: [4. A better network](4-better.md)
#
# **How does a decoder find the right word among a hundred letters, and why does it learn this so late?**
#
# The encoder is that of lesson 2, but all its states are kept, one per letter. At each target position the decoder
# scores every state, normalizes the scores to weights that sum to one, and computes the weighted mean, the *context*.
#
# * score: $e_{ts} = v^\top \tanh(W s_{t-1} + U h_s)$
# * weights: $\alpha_t = \mathrm{softmax}(e_t)$
# * context: $c_t = \sum_s \alpha_{ts} h_s$
# * decoder state: $s_t = \mathrm{LSTM}(c_t, s_{t-1})$, $s_0 = 0$
# * symbol: $\mathrm{softmax}(W_o c_t + b_o)$
#
# $h_s$ is the encoder state at letter $s$, and $s_t$ the decoder state at target position $t$. The *query* is the
# decoder state $s_{t-1}$, the *key* of a letter is $U h_s$, and $e_{ts}$ is the *energy*. In the code, $W$ is
# `query_projection`, $U$ is `key_projection` and $v$ is `energy`. The [glossary](../glossary.md#symbols) has all
# symbols.
#
# This is exactly the decoder of the 2016 notebook. Three of its properties are unusual. The output layer reads the
# context alone, so the state acts only through the attention weights. No output symbol is fed back. And attention
# includes padding.

# %%
SAMPLES = 150_000
EVAL_INTERVAL = 5_000
VALIDATION_SAMPLES = 5_000

# %%
import numpy as np
import torch
from IPython.display import Image

from pellucid.data.synthetic import draw_digits
from pellucid.errors import DataError
from pellucid.model.network import parameter_count
from pellucid.recipes.digits.analysis import gradient_norms
from pellucid.recipes.digits.networks import DigitsArchitecture, SpelledDigitsNetwork, parameter_shapes
from pellucid.recipes.digits.report import (
    POSITIONS_ATTENTION,
    DigitsRuns,
    curve_figure,
    load_reference_curves,
    position_figure,
)
from pellucid.recipes.digits.training import (
    DigitsExperiment,
    DigitsResult,
    DigitsTrainingPlan,
    DigitsValidation,
    evaluate_network,
    run_experiment,
    to_tensors,
    training_steps,
)
from pellucid.recipes.published_data import data_folder
from pellucid.reporting.figures import MUTED, empty_figure, freeze_layout, mean_weights_figure, style_axes, to_png

# %% [markdown]
# ## Training
#
# `training_steps` updates the network and yields at each validation. There the network is evaluated, and the gradients
# of [lesson 1](1-data.md) are computed again.

# %%
torch.manual_seed(1)
torch.set_num_threads(1)
network, plan = (
    SpelledDigitsNetwork(DigitsArchitecture("attention")),
    DigitsTrainingPlan(SAMPLES, eval_interval=EVAL_INTERVAL, validation_samples=VALIDATION_SAMPLES),
)
names = [name for name, _ in parameter_shapes(network)]
validation, batch = (
    draw_digits(count, 20, 20, np.random.default_rng([1, count])) for count in (VALIDATION_SAMPLES, 100)
)
norms, curve = {0: gradient_norms(network, batch)}, []
for samples, loss in training_steps(network, plan, seed=1):
    evaluation = evaluate_network(network, validation)
    curve.append(DigitsValidation(samples, loss, evaluation.symbol_accuracy, evaluation.exact_match))
    norms[samples] = gradient_norms(network, batch)
run = DigitsResult("attention of 2016", 1, parameter_count(network), 0.0, curve, evaluation)
print(
    f"{run.parameters:,} parameters, symbol accuracy {100 * evaluation.symbol_accuracy:.1f} %, "
    f"exact match {100 * evaluation.exact_match:.1f} % after {samples:,} samples"
)

# %%
try:
    references = load_reference_curves(data_folder(), "attention")
except DataError:
    references = []
    print("The authors' curves are missing; the figure is drawn without them.")
figure = curve_figure([DigitsRuns(run.name, [run])], references, SAMPLES)
Image(to_png(figure, 100), alt="Validation accuracy with attention, over the samples")

# %% [markdown]
# The accuracy is much higher than in lesson 2, with half of the samples. The authors' two complete runs reached 0.731
# and 0.892; they had no fixed seed, and such runs differ widely.
#
# ## Late rise of the accuracy
#
# The accuracy of all runs stays near chance at first and then rises. The gradients show the cause.

# %%
figure = empty_figure(7.2, 3.4)
axes = figure.add_subplot()
drawn_parameters = {
    "decoder.attention.query_projection.weight": "query: W",
    "decoder.attention.key_projection.weight": "key: U",
    "output.weight": "output: W_o",
}
for (name, label), color in zip(drawn_parameters.items(), ("#1f5fc0", "#15803d", "#c2410c"), strict=True):
    axes.plot(list(norms), [values[names.index(name)] for values in norms.values()], color=color, label=label)
style_axes(axes)
axes.set_yscale("log")
axes.set_xlabel("samples seen", color=MUTED)
axes.set_ylabel("gradient norm", color=MUTED)
axes.legend(frameon=False, labelcolor="linecolor")
Image(
    to_png(freeze_layout(figure), 100),
    alt="Gradients of query, key and output during training, on a logarithmic scale",
)

# %%
query = names.index("decoder.attention.query_projection.weight")
largest = max(norms, key=lambda seen: norms[seen][query])
initial_norm, largest_norm = norms[0][query], norms[largest][query]
print(f"gradient of the query: {initial_norm:.1e} at initialization, {largest_norm:.1e} at {largest:,} samples")
print(f"samples to an accuracy of 0.3: {next((p.samples for p in curve if p.symbol_accuracy > 0.3), 'not reached')}")

# %% [markdown]
# At initialization all weights are small, so all encoder states are similar, all scores are similar, and the context is
# the mean of the states. The query has nearly no effect: the gradient of $W$ contains $v$, differences between states
# and a decoder state close to zero as factors, and each of them is small. Output layer and encoder learn first; when
# the states differ, the query has an effect, and all gradients grow. The accuracy rises above chance when the gradient
# of the query is as large as the others. This explains the late rise; [lesson 4](4-better.md) explains why the accuracy
# then rises so slowly.
#
# ## Attention weights
#
# The mean weights over all validation samples, a line for each of the 21 target positions, as in the notebook:

# %%
figure = mean_weights_figure(np.array(evaluation.attention_mean))
Image(to_png(figure, 100), alt="Mean attention weights, a line for each target position")

# %% [markdown]
# The attention of each symbol is to the right of that of the symbol before it, by a word and a space. The peaks are
# narrow at first and wide later. The width does not show uncertainty: the position of a late word varies more between
# samples (lesson 1), so the mean over samples is wide even if the weights of each sample are concentrated. The weights
# of the last digits do spread, into the padding on the right. The end symbol at position 21 has no word.
#
# The generator records the position of each word, so attention can be evaluated as an alignment.

# %%
steps = np.diff(np.argmax(evaluation.attention_mean, axis=1)[:10])
print(f"over the first ten symbols the peak moves by {steps.mean():.1f} letters per symbol")
agreement = evaluation.agreement
print(f"alignment error: the greatest weight is outside the right word for {100 * agreement.error:.1f} % of the digits")
print(f"{100 * agreement.mass:.1f} % of the weight is on the right word")

# %% [markdown]
# A weight outside the word is not necessarily an error: the state at a letter also encodes the letters before it.
#
# ## Accuracy by position

# %%
figure = position_figure([DigitsRuns(run.name, [run])], POSITIONS_ATTENTION, "the better run of 2016")
Image(to_png(figure, 100), alt="Accuracy by position with attention")

# %% [markdown]
# The accuracy of the middle digits is no longer low. Errors are at late positions, with a minimum shortly before the
# end, in this run and in the authors'. The network may fail to count that many words, or something near the end of the
# input may disturb it.
#
# ## Attention on padding
#
# Inputs have different lengths, and after the end of an input the encoder repeats its last state. The attention of this
# network includes these positions. How much of it is there?

# %%
with torch.inference_mode():
    weights = network(*to_tensors(validation, slice(0, 500)), 21).attention.numpy()
on_padding = (weights * (validation.input_masks[:500] == 0)[:, None]).sum(axis=2).mean(axis=0)
print("share of the attention on padding, for each target position:")
print(*(f"{position}: {share:.2f}" for position, share in enumerate(on_padding, 1)), sep="  ")

# %% [markdown]
# Attention covers padding at the positions of the minimum. Padding is many copies of the last state, and each copy has
# a weight: together they outweigh the few letters of a late word. The same network is trained with masked padding.

# %%
masked = run_experiment(
    DigitsExperiment("padding masked", DigitsArchitecture("attention", attends_padding=False), plan, seed=1)
)
print(
    f"padding masked: symbol accuracy {100 * masked.accuracy:.1f} %, alignment error "
    f"{100 * masked.final.agreement.error:.1f} %; padding attended: {100 * run.accuracy:.1f} %, "
    f"{100 * agreement.error:.1f} %"
)
figure = position_figure([DigitsRuns("padding attended", [run]), DigitsRuns("padding masked", [masked])])
Image(to_png(figure, 100), alt="Accuracy by position, with padding attended and masked")

# %% [markdown]
# The minimum has disappeared. Its cause was the missing mask, not counting. (This is one seed, and such runs differ
# between seeds; but the authors' curve has its minimum at the same position.) The remaining problem is the number of
# samples: [lesson 4](4-better.md).
#
# ## Try it
#
# ```sh
# pellucid recipe digits-bidirectional --run runs/bidirectional
# ```
#
# trains this network with masked padding and a bidirectional encoder; `digits-attention-faithful --seeds 3` trains the
# original network with three seeds, and requires the authors' curves (`--data`). In the notebook, use
# `DigitsArchitecture("attention", initialization="scaled")`, which has larger initial weights: when does the gradient
# of the query grow?
