# %% [markdown]
# # 5. Longer inputs
#
# [All lessons](README.md) · [this page as a notebook](5-longer.ipynb) · previous: [4. A better network](4-better.md) ·
# next: [6. Exercises](6-exercises.md)
#
# **A network is trained on at most twenty digits. What is its output for a hundred?**
#
# A person who can read twenty digits can read a hundred: the next word is always after the last one. Which type of
# attention learns this rule? Three types are trained on one to twenty digits.
#
# * *additive*: compares the decoder's query with each encoder state, as in lessons 3 and 4;
# * *location-sensitive*: additive, with the attention weights of the previous step as further input, through
#   convolutions;
# * *monotonic*: scans from the position where it stopped last, stops at each letter with some probability, and never
#   moves back.
#
# All three decoders have a zero initial state and compute the output from the context alone, so their position is known
# from attention only.

# %%
SAMPLES = 40_000
DEV_PAIRS = 300
TEST_PAIRS = 500
LENGTHS = (1, 10, 20, 25, 30, 40, 60, 80, 100)
PAIRS_PER_LENGTH = 50

# %%
import tempfile
from pathlib import Path

import numpy as np
from IPython.display import Image, Markdown, display

from pellucid.data.synthetic import spell_digits, spelled_digits
from pellucid.recipes.digits.attention_models import DigitsJob, trace_agreement, train_and_evaluate
from pellucid.recipes.digits.report import line_colors
from pellucid.recipes.recipe import load_recipe_config
from pellucid.reporting.figures import MUTED, attention_figure, empty_figure, freeze_layout, style_axes, to_png
from pellucid.run_folder.predictor_loader import load
from pellucid.viewer.reports import score_run

# %% [markdown]
# ## Training

# %%
out, attention_types = Path(tempfile.mkdtemp()), ("additive", "location", "monotonic")
predictors = {}
for attention_type in attention_types:
    config = load_recipe_config("digits-extrapolate", {"seed": 1, "attention": {"type": attention_type}})
    job = DigitsJob(attention_type, out, 1, SAMPLES, config, digits=(1, 20), dev_pairs=DEV_PAIRS, test_pairs=TEST_PAIRS)
    run = train_and_evaluate(job)
    predictors[attention_type] = load(run.folder)
    print(f"{attention_type}: {run.result.parameters:,} parameters, symbol accuracy {100 * run.result.accuracy:.2f} %")

# %% [markdown]
# These test inputs have the training lengths. Location-sensitive attention has learned them all, additive attention
# nearly all. Monotonic attention has not with this number of samples; it is included for its attention weights. Next,
# longer inputs are tested.

# %%
accuracy, alignment_error = {}, {}
for attention_type, predictor in predictors.items():
    for digits in LENGTHS:
        scored_run = score_run(predictor, spelled_digits(PAIRS_PER_LENGTH, digits, digits, 1_000 + digits))
        targets = [target for (target,) in scored_run.references]
        accuracy[attention_type, digits] = scored_run.evaluation.symbol_accuracy / 100
        alignment_error[attention_type, digits] = trace_agreement(scored_run.traces, targets).error

head = f"| digits | {' | '.join(attention_types)} |\n|--:|{'--:|' * len(attention_types)}\n"
rows = [f"| {n} | {' | '.join(f'{100 * accuracy[each, n]:.1f}' for each in attention_types)} |" for n in LENGTHS]
display(Markdown("Symbol accuracy, %, by number of digits:\n\n" + head + "\n".join(rows)))

# %%
figure = empty_figure(7.2, 3.4)
axes = figure.add_subplot()
axes.axvspan(1, 20, color="#eef2f7", linewidth=0)
for attention_type, color in zip(attention_types, line_colors(3), strict=True):
    accuracies = [accuracy[attention_type, digits] for digits in LENGTHS]
    axes.plot(LENGTHS, accuracies, "o-", color=color, markersize=3, label=attention_type)
style_axes(axes)
axes.set_ylim(0, 1.03)
axes.set_xlabel("digits of the input (training lengths are shaded)", color=MUTED)
axes.set_ylabel("symbol accuracy", color=MUTED)
axes.legend(frameon=False, labelcolor="linecolor")
Image(to_png(freeze_layout(figure), 100), alt="Symbol accuracy over the number of digits, for three types of attention")

# %% [markdown]
# ## Failure of additive attention
#
# The figure shows the position of the greatest weight at each step for one of the longest inputs. A network that
# follows the words draws a rising line that stops at the last word. A line that continues to the right has no end
# symbol and was truncated.

# %%
example = spelled_digits(1, max(LENGTHS), max(LENGTHS), 5)[0]
figure = empty_figure(7.2, 3.8)
axes = figure.add_subplot()
for attention_type, color in zip(attention_types, line_colors(3), strict=True):
    (trace,) = predictors[attention_type].predict([example.source])
    positions = trace.attention.argmax(axis=1) + 1
    axes.plot(positions, ".-", color=color, linewidth=1, markersize=4, label=attention_type)
ends = np.cumsum([len(word) + 1 for word in example.source.split()])
axes.plot(ends - 1, "--", color=MUTED, linewidth=1, label="end of each word")
style_axes(axes)
axes.set_xlabel("target position", color=MUTED)
axes.set_ylabel("letter with the greatest weight", color=MUTED)
axes.legend(frameon=False, labelcolor="linecolor")
Image(to_png(freeze_layout(figure), 100), alt="Attended letter of each type of attention, step by step, longest input")

# %% [markdown]
# Additive attention follows the words for about the longest training length, then it jumps. It finds the next word by
# the content of the encoder states. So the states must encode the number of the word, and the query must contain the
# next number. Both have learned to count to twenty only. Beyond that the states have no information that the query
# uses, and attention loses its position.
#
# Location-sensitive attention need not count. Its input includes the last attention weights, and the next word is a few
# letters further, at any position. This rule holds at letter 400 as at letter 40.
#
# Monotonic attention cannot move back, which is half of the rule. But it must find the position to stop at from the
# states, and here it does not: it skips words and then stays at one letter. It is trained with the *expected* stop and
# decodes with a definite one, which makes it harder to train than the other two.

# %%
for attention_type in attention_types:
    errors = ", ".join(f"{100 * alignment_error[attention_type, digits]:.1f} % of {digits}" for digits in LENGTHS[-3:])
    print(f"{attention_type}: digits whose greatest weight is outside their word: {errors}")

# %% [markdown]
# ## Weights of location-sensitive attention
#
# The source is the first digits of e. The greatest weight is on one letter of each word; the end symbol has no word.

# %%
(trace,) = predictors["location"].predict([spell_digits("2718281")])
print(trace)
Image(to_png(attention_figure(trace), 90), alt="Location-sensitive attention on the first digits of e: a staircase")

# %% [markdown]
# ## Try it
#
# ```sh
# pellucid recipe digits-extrapolate --run runs/extrapolate
# ```
#
# tests fourteen lengths with 200 pairs each. In the notebook, compute the initial state of the decoder from the
# encoder's last state (`"decoder": {"init_hidden": "final", "output_layer_inputs": "state-and-context"}`), so that the
# decoder can count in its own state. Up to which length does location-sensitive attention work then?
