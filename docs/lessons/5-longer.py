# %% [markdown]
# # 5. Longer
#
# [All lessons](README.md) · [this page as a notebook](5-longer.ipynb) · before: [4. A better network](4-better.md) ·
# next: [6. Exercises](6-exercises.md)
#
# **A network has seen at most twenty digits. What does it do with a hundred?**
#
# A person who can read twenty digits can read a hundred: one looks where one looked last, and moves on. What must a
# network know to do the same? Three kinds of attention are trained on one to twenty digits.
#
# * *additive*: scores what the decoder asks against each state, as in lessons 3 and 4;
# * *location*: additive, and it also sees the weights of the step before, through filters that slide over them;
# * *monotonic*: scans on from where it stopped last, and stops at each letter with some probability; it never goes
#   back.
#
# All three start from nothing and write from the context alone, so that nothing but where they look tells them where
# they are.

# %%
SAMPLES = 40_000
DEVELOPMENT = 300
TEST = 500
LENGTHS = (1, 10, 20, 25, 30, 40, 60, 80, 100)
EACH = 50

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
from pellucid.training.run_folder import load
from pellucid.viewer.reports import score_run

# %% [markdown]
# ## Training

# %%
out, scores = Path(tempfile.mkdtemp()), ("additive", "location", "monotonic")
networks, within = {}, {}
for score in scores:
    config = load_recipe_config("digits-extrapolate", {"seed": 1, "attention": {"type": score}})
    task = DigitsJob(score, out, 1, SAMPLES, config, digits=(1, 20), development=DEVELOPMENT, test=TEST)
    result = train_and_evaluate(task)
    networks[score], within[score] = load(result.folder), result.outcome
    print(f"{score}: {result.outcome.parameters:,} parameters, {100 * result.outcome.accuracy:.2f} % of the symbols")

# %% [markdown]
# These are rows as long as those they were trained on. Attention by location has learned them all, additive attention
# nearly all. Monotonic attention has not got there with these samples; it comes along to show what its looks do. Now
# longer rows.

# %%
right, error = {}, {}
for score, network in networks.items():
    for digits in LENGTHS:
        judged = score_run(network, spelled_digits(EACH, digits, digits, 1_000 + digits))
        answers = [target for (target,) in judged.references]
        right[score, digits] = judged.evaluation.symbol_accuracy / 100
        error[score, digits] = trace_agreement(judged.traces, answers).error

head = f"| digits | {' | '.join(scores)} |\n|--:|{'--:|' * len(scores)}\n"
rows = [f"| {n} | {' | '.join(f'{100 * right[score, n]:.1f}' for score in scores)} |" for n in LENGTHS]
display(Markdown("Symbols right, %, by the number of digits:\n\n" + head + "\n".join(rows)))

# %%
figure = empty_figure(7.2, 3.4)
axes = figure.add_subplot()
axes.axvspan(1, 20, color="#eef2f7", linewidth=0)
for score, color in zip(scores, line_colors(3), strict=True):
    axes.plot(LENGTHS, [right[score, digits] for digits in LENGTHS], "o-", color=color, markersize=3, label=score)
style_axes(axes)
axes.set_ylim(0, 1.03)
axes.set_xlabel("digits of the input (shaded: lengths that were trained on)", color=MUTED)
axes.set_ylabel("symbols right", color=MUTED)
axes.legend(frameon=False, labelcolor="linecolor")
Image(to_png(freeze_layout(figure), 100), alt="Symbols right over the number of digits, for three kinds of attention")

# %% [markdown]
# ## Why does additive attention break?
#
# Look at one row of the longest: where does the greatest weight lie at each step? A network that reads on draws a
# rising line, and stops at the last word. A line that runs on to the right never wrote the end and was cut.

# %%
row = spelled_digits(1, max(LENGTHS), max(LENGTHS), 5)[0]
figure = empty_figure(7.2, 3.8)
axes = figure.add_subplot()
for score, color in zip(scores, line_colors(3), strict=True):
    (trace,) = networks[score].predict([row.source])
    axes.plot(trace.attention.argmax(axis=1) + 1, ".-", color=color, linewidth=1, markersize=4, label=score)
ends = np.cumsum([len(word) + 1 for word in row.source.split()])
axes.plot(ends - 1, "--", color=MUTED, linewidth=1, label="where each word ends")
style_axes(axes)
axes.set_xlabel("symbol written", color=MUTED)
axes.set_ylabel("letter with the greatest weight", color=MUTED)
axes.legend(frameon=False, labelcolor="linecolor")
Image(to_png(freeze_layout(figure), 100), alt="Where each kind of attention looks, step by step, in the longest row")

# %% [markdown]
# Additive attention follows the words for about as long as the longest row that it was trained on, then it jumps. It
# finds the next word by what the states say. So the encoder's states must say which word this is, the first or the
# nineteenth, and the decoder must ask for the next number. Both have counted to twenty and never further. Beyond that
# the states say nothing that was ever asked for, and the look loses its place.
#
# Attention by location need not count. It sees where it looked last, and the next word is a few letters further on,
# wherever that is. This rule is as true at letter 400 as at letter 40.
#
# Monotonic attention cannot go back, which is half of the rule. But where to stop it must know from the states, and
# here it does not: it passes words by, then stays at one letter for good. It is trained on where it stops *on average*
# and used with stops that are certain, which makes it harder to train than the other two.

# %%
for score in scores:
    shares = ", ".join(f"{100 * error[score, digits]:.1f} % of {digits}" for digits in LENGTHS[-3:])
    print(f"{score}: digits whose greatest weight lies outside their word: {shares}")

# %% [markdown]
# ## How location looks
#
# The first digits of e, seen by the network that reads on. It looks at one letter of each word, and the end at none of
# its own.

# %%
(trace,) = networks["location"].predict([spell_digits("2718281")])
print(trace)
Image(to_png(attention_figure(trace), 90), alt="Attention by location on the first digits of e: a staircase")

# %% [markdown]
# ## Try it
#
# ```sh
# pellucid recipe digits-extrapolate --out runs/extrapolate
# ```
#
# tests fourteen lengths, 200 rows each. In the notebook, let the decoder start from the encoder's summary
# (`"decoder": {"init_hidden": "final", "output": "state-and-context"}`): it may count in its own state now. How far
# does attention by location reach then?
