# %% [markdown]
# # 4. A better network
#
# [All lessons](README.md) · [this page as a notebook](4-better.ipynb) · before: [3. Attention](3-attention.md) · next:
# [5. Longer](5-longer.md)
#
# **The network of 2016 takes some 150,000 samples, even with padding masked. How many are enough, and what makes the
# difference?**
#
# Here is Pellucid's own network, with as many units and fewer parameters. Like any of Pellucid's it never looks at
# padding. It differs from the one of lesson 3 in seven more ways: it is bidirectional; it is told what it wrote last;
# its output sees the state beside the context; it starts from the encoder's last state; its batches are small; its rate
# is higher; and the rate falls. Which of them matter?

# %%
SAMPLES = 30_000
DEVELOPMENT = 500
TEST = 2_000

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
from pellucid.recipes.digits.training import DigitsResult, DigitsStudy, DigitsTrainingPlan, run_study
from pellucid.recipes.recipe import load_recipe_config
from pellucid.reporting.figures import attention_figure, mean_weights_figure, to_png
from pellucid.training.run_folder import load

# %% [markdown]
# ## One training
#
# The pairs are written to files and trained on as any other pairs would be, each seen once. The settings are a file of
# the package; these are the ones that count.

# %%
out = Path(tempfile.mkdtemp())


def trained(name: str, changes: dict) -> TrainedDigitsRun:
    """Our network with some settings changed."""
    config = load_recipe_config("digits-fewest", {"seed": 1, **changes})
    return train_and_evaluate(DigitsJob(name, out, 1, SAMPLES, config, development=DEVELOPMENT, test=TEST))


config = load_recipe_config("digits-fewest", {})
print(f"encoder: {config.encoder.cell}, {config.encoder.hidden_size} units, reads {config.encoder.bidirectional} ways")
print(f"attention: {config.attention.type}, {config.attention.size} units")
print(f"decoder: {config.decoder.cell}, {config.decoder.hidden_size} units, output from {config.decoder.output}")
print(f"training: batches of {config.training.batch_size}, rate {config.training.learning_rate}")

# %%
ours = trained("ours", {})
enough = samples_to_accuracy(ours.outcome, 0.99)
print(
    f"{ours.outcome.parameters:,} parameters, {100 * ours.outcome.accuracy:.2f} % of the symbols, "
    f"{100 * ours.outcome.final.exact_match:.1f} % of the sequences of the test set"
)
print(f"99 % of the symbols were right after {f'{enough:,}' if enough else 'more than all'} samples")

# %% [markdown]
# ## Beside the network of 2016
#
# The same number of samples, drawn as it draws them; then the same network with one thing changed.

# %%
notebook, short = (
    DigitsArchitecture("attention"),
    DigitsTrainingPlan(SAMPLES, eval_interval=max(SAMPLES // 20, 1), validation_samples=DEVELOPMENT),
)
theirs = [
    run_study(DigitsStudy("2016", notebook, short, seed=1)),
    run_study(DigitsStudy("2016, weights scaled by size", notebook._replace(initial="scaled"), short, seed=1)),
    run_study(
        DigitsStudy("2016, rate 0.02 falling", notebook, short._replace(learning_rate=0.02, decay="cosine"), seed=1)
    ),
]
figure = curve_figure([DigitsRuns(run.name, [run]) for run in (ours.outcome, *theirs)], [], SAMPLES)
Image(to_png(figure, 100), alt="Accuracy over the samples: Pellucid's network, and three of 2016")

# %% [markdown]
# ## Which ingredient does what?
#
# Each is taken away by itself; everything else stays.

# %%
runs = [ours.outcome, *(trained(name, changes).outcome for name, changes in ABLATIONS.items() if changes), *theirs]


def row(run: DigitsResult) -> str:
    """One line of the table."""
    enough = samples_to_accuracy(run, 0.99)
    return f"| {run.name} | {f'{enough:,}' if enough else '–'} | {100 * run.accuracy:.1f} | {run.parameters:,} |"


head = "| network | samples to 99 % | symbols right, % | parameters |\n|---|--:|--:|--:|\n"
display(Markdown(head + "\n".join(map(row, runs))))

# %%
without = runs[1 : len(ABLATIONS)]
order = sorted(without, key=lambda run: run.accuracy)
print(f"taken away, it costs most: {order[0].name} ({100 * order[0].accuracy:.1f} % of the symbols are left)")
unharmed = [run.name for run in without if run.accuracy > 0.99]
print(f"still above 99 %: {'; '.join(unharmed) or 'none'}")

# %% [markdown]
# One seed each, so differences are chance unless they are large and come back: over three seeds of the recipe,
# starting from zero fails in one, as it does here, and gets there in two. Small batches and a high rate make many
# large steps out of few samples, and that is what gets the query over the flat ground of lesson 3: without them no
# seed gets there. Feedback and a bidirectional encoder matter little: over three seeds the networks
# without them get there a little later, and more surely. Added alone to the network of 2016, larger weights or a
# higher rate do nothing within so few samples: what helps is the combination.
#
# ## One decoding
#
# Everything that one decoding did is a `Trace`: the symbols read and written, the probability of each, the runners-up,
# and the weights. Here are the first digits of π; of twenty, the first seven are drawn.

# %%
(trace,) = load(ours.folder).predict([spell_digits("31415926535897932384")])
print(f"{trace.output}, log p = {trace.score:.3f}")
least = int(trace.log_probabilities.argmin())
(best, second), (p, q) = trace.top_symbols[least][:2], np.exp(trace.top_log_probabilities[least][:2])
print(f"least certain of symbol {least + 1}: {best!r} with p = {p:.4f}, then {second!r} with p = {q:.4f}")

# %%
few, letters = 7, 32
part = replace(
    trace,
    source=trace.source[:letters],
    target=trace.target[:few],
    attention=trace.attention[:few, :letters],
    log_probabilities=trace.log_probabilities[:few],
)
Image(to_png(attention_figure(part), 90), alt="Where the network looked to write the first seven digits of pi")

# %%
words = trace.text.split()
seen = [words[trace.text[:at].count(" ")] for at in trace.attention.argmax(axis=1)]
print("; ".join(f"{symbol} from {word!r}" for symbol, word in zip(trace.target, seen, strict=True)))
agreed = ours.outcome.final.agreement
print(f"the greatest weight lies outside the right word for {100 * agreed.error:.1f} % of the digits of the test set")

# %% [markdown]
# Each row moves on by one word. How a word's letters share the weight is the network's own choice: it is bidirectional,
# so the state at one letter knows its neighbors, too. Spaces get almost none.

# %%
figure = mean_weights_figure(np.array(ours.outcome.final.attention_mean))
Image(to_png(figure, 100), alt="Mean weights of Pellucid's network, a line for each symbol written")

# %% [markdown]
# ## Try it
#
# ```sh
# pellucid recipe digits-attention --out runs/demo
# ```
#
# trains with more samples, shows three decodings and writes a report. `digits-fewest --seeds 3` makes the table for
# three seeds, with more changes to the network of 2016, where the authors' curves are at hand (`--data`). In the
# notebook, see whether larger batches can be made up for by a higher rate:
# `trained("both", {"training": {"batch_size": 100, "learning_rate": 0.06}})`.
