# %% [markdown]
# # 4. A better network
#
# [All lessons](README.md) · [this page as a notebook](4-better.ipynb) · previous: [3. Attention](3-attention.md) ·
# next: [5. Longer inputs](5-longer.md)
#
# **The network of 2016 needs some 150,000 samples, even with masked padding. How many are necessary, and what makes the
# difference?**
#
# This lesson trains Pellucid's network, with as many units and fewer parameters. Like all of Pellucid's networks it
# masks padding. It differs from the network of lesson 3 in more properties. Seven of them are removed below, one at a
# time: the encoder is bidirectional; the previous output symbol is fed back; the output layer reads the state beside
# the context; the initial state is computed from the encoder's last state; the batches are small; the learning rate is
# higher; and it decays. Others stay: the decoder is a GRU instead of an LSTM, the embeddings are learned instead of
# one-hot, and the initial weights are larger. Which of the seven properties matter?

# %%
SAMPLES = 30_000
DEV_PAIRS = 500
TEST_PAIRS = 2_000

# %%
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
from IPython.display import Image, Markdown, display

from pellucid.data.synthetic import spell_digits
from pellucid.recipes.digits.attention_models import (
    ABLATIONS,
    DigitsJob,
    TrainedDigitsRun,
    samples_to_accuracy,
    train_and_evaluate,
)
from pellucid.recipes.digits.networks import DigitsArchitecture
from pellucid.recipes.digits.report import DigitsRuns, curve_figure
from pellucid.recipes.digits.training import DigitsExperiment, DigitsResult, DigitsTrainingPlan, run_experiment
from pellucid.recipes.recipe import load_recipe_config
from pellucid.reporting.figures import attention_figure, mean_weights_figure, to_png
from pellucid.run_folder.predictor_loader import load

# %% [markdown]
# ## One training
#
# The pairs are written to files, and the network is trained on them as on any other pairs; each pair is seen once. The
# settings are a file of the package; these are the important ones.

# %%
out = Path(tempfile.mkdtemp())


def train(name: str, changes: dict) -> TrainedDigitsRun:
    """Train Pellucid's network with changed settings.

    Args:
        name: Name of the run.
        changes: Settings that override those of digits-sample-efficiency.
    """
    config = load_recipe_config("digits-sample-efficiency", {"seed": 1, **changes})
    return train_and_evaluate(DigitsJob(name, out, 1, SAMPLES, config, dev_pairs=DEV_PAIRS, test_pairs=TEST_PAIRS))


config = load_recipe_config("digits-sample-efficiency", {})
print(
    f"encoder: {config.encoder.cell}, {config.encoder.hidden_size} units, bidirectional {config.encoder.bidirectional}"
)
print(f"attention: {config.attention.type}, {config.attention.size} units")
decoder = config.decoder
print(f"decoder: {decoder.cell}, {decoder.hidden_size} units, output from {decoder.output_layer_inputs}")
print(f"training: batch size {config.training.batch_size}, learning rate {config.training.learning_rate}")

# %%
run = train("pellucid", {})
needed = samples_to_accuracy(run.result, 0.99)
print(
    f"{run.result.parameters:,} parameters, symbol accuracy {100 * run.result.accuracy:.2f} %, "
    f"exact match {100 * run.result.final.exact_match:.1f} % on the test set"
)
print(f"samples to a symbol accuracy of 99 %: {f'{needed:,}' if needed else 'not reached'}")

# %% [markdown]
# ## Comparison with the network of 2016
#
# The network of 2016 is trained on the same number of samples, and then with one change at a time.

# %%
architecture, plan = (
    DigitsArchitecture("attention"),
    DigitsTrainingPlan(SAMPLES, eval_interval=max(SAMPLES // 20, 1), validation_samples=DEV_PAIRS),
)
notebook_results = [
    run_experiment(DigitsExperiment("2016", architecture, plan, seed=1)),
    run_experiment(
        DigitsExperiment("2016, scaled initialization", architecture._replace(initialization="scaled"), plan, seed=1)
    ),
    run_experiment(
        DigitsExperiment(
            "2016, learning rate 0.02 with cosine decay",
            architecture,
            plan._replace(learning_rate=0.02, decay="cosine"),
            seed=1,
        )
    ),
]
groups = [DigitsRuns(result.name, [result]) for result in (run.result, *notebook_results)]
Image(
    to_png(curve_figure(groups, [], SAMPLES), 100),
    alt="Accuracy over the samples: Pellucid's network, and three variants of 2016",
)

# %% [markdown]
# ## Ablations
#
# Each ingredient is removed by itself; all other settings are unchanged.

# %%
ablations = [train(name, changes).result for name, changes in ABLATIONS.items() if changes]


def format_row(result: DigitsResult) -> str:
    """Return a row of the table.

    Args:
        result: Result of a training.
    """
    needed = samples_to_accuracy(result, 0.99)
    samples = f"{needed:,}" if needed else "–"
    return f"| {result.name} | {samples} | {100 * result.accuracy:.1f} | {result.parameters:,} |"


head = "| network | samples to 99 % | symbol accuracy, % | parameters |\n|---|--:|--:|--:|\n"
display(Markdown(head + "\n".join(map(format_row, [run.result, *ablations, *notebook_results]))))

# %%
lowest = min(ablations, key=lambda result: result.accuracy)
print(f"lowest accuracy: {lowest.name} ({100 * lowest.accuracy:.1f} %)")
above = [result.name for result in ablations if result.accuracy > 0.99]
print(f"accuracy above 99 %: {'; '.join(above) or 'none'}")

# %% [markdown]
# Each row is one seed, so only large differences that other seeds confirm are meaningful. Over three seeds of the
# recipe, a zero initial state fails with one seed, as here, and reaches 99 % with two. Small batches and a high
# learning rate make many large updates from few samples, which overcome the small gradients of the query at
# initialization (lesson 3): without them no seed reaches 99 %. Feedback of the output symbol and a bidirectional
# encoder have a small effect: over three seeds the networks without them need somewhat more samples, and reach 99 %
# with more of the seeds. Larger initial weights or a higher learning rate alone have no effect on the network of 2016
# with so few samples: the combination of the ingredients matters.
#
# ## One decoding
#
# A `Trace` holds the result of decoding one source: source and target symbols, the probability of each, the most
# probable alternatives, and the attention weights. The source is the first twenty digits of π; the figure has the first
# seven.

# %%
(trace,) = load(run.folder).predict([spell_digits("31415926535897932384")])
print(f"{trace.output}, log p = {trace.score:.3f}")
least = int(trace.log_probabilities.argmin())
(best, second), (p, q) = trace.top_symbols[least][:2], np.exp(trace.top_log_probabilities[least][:2])
print(f"least probable symbol: number {least + 1}, {best!r} with p = {p:.4f}, then {second!r} with p = {q:.4f}")

# %%
num_digits, num_letters = 7, 32
beginning = replace(
    trace,
    source=trace.source[:num_letters],
    target=trace.target[:num_digits],
    attention=trace.attention[:num_digits, :num_letters],
    log_probabilities=trace.log_probabilities[:num_digits],
)
Image(to_png(attention_figure(beginning), 90), alt="Attention weights of the first seven digits of pi")

# %%
words = trace.text.split()
attended = [words[trace.text[:position].count(" ")] for position in trace.attention.argmax(axis=1)]
print("; ".join(f"{symbol} from {word!r}" for symbol, word in zip(trace.target, attended, strict=True)))
error = run.result.final.agreement.error
print(f"alignment error: the greatest weight is outside the right word for {100 * error:.1f} % of the test digits")

# %% [markdown]
# Each target symbol attends to the next word. The distribution of the weight over the letters of a word is arbitrary:
# the encoder is bidirectional, so the state at one letter also encodes its neighbors. Spaces have almost no weight.

# %%
figure = mean_weights_figure(np.array(run.result.final.attention_mean))
Image(to_png(figure, 100), alt="Mean attention weights of Pellucid's network, a line for each target position")

# %% [markdown]
# ## Try it
#
# ```sh
# pellucid recipe digits-attention --run runs/demo
# ```
#
# trains with more samples, prints three decodings and writes a report. `digits-sample-efficiency --seeds 3` computes
# the table for three seeds, with more changes to the network of 2016, and requires the authors' curves (`--data`).
# In the notebook, test whether a higher learning rate compensates for larger batches:
# `train("both", {"training": {"batch_size": 100, "learning_rate": 0.06}})`.
