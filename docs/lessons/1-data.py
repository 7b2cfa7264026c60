# %% [markdown]
# # 1. The data and the networks
#
# [All lessons](README.md) · [this page as a notebook](1-data.ipynb) · next: [2. The bottleneck](2-bottleneck.md)
#
# **Which arrays does a network receive for "nine eight", and does every parameter have a gradient?**
#
# The task is that of a blog of 2015 and a course notebook of 2016: the source is a number of digits spelled out letter
# by letter, and the target is the digits. The task is simple for a person and has the difficulties of translation: the
# two sides differ in length, the words differ in length, and only the letters show where a word begins.

# %%
SAMPLES = 5_000
BATCH_SIZE = 100

# %%
import numpy as np
import torch
from IPython.display import Image, Markdown, display

from pellucid.data.synthetic import NUM_OUTPUTS, SYMBOLS, draw_digits
from pellucid.recipes.digits.analysis import gradient_norms, layer_shapes
from pellucid.recipes.digits.networks import DigitsArchitecture, SpelledDigitsNetwork, parameter_shapes
from pellucid.recipes.digits.training import to_tensors
from pellucid.reporting.figures import ACCENT, MUTED, SHADES, empty_figure, freeze_layout, style_axes, to_png

# %% [markdown]
# ## Pairs
#
# Samples are generated: a number of digits with uniform probability, spelled out with one space between words. The
# target is the digits, followed by the end symbol `#`.

# %%
samples = draw_digits(3, 1, 2, np.random.default_rng(1))
for source, target in samples.texts():
    print(f"{source!r} → {target!r}")

# %% [markdown]
# Networks compute with numbers. Source and target share one vocabulary; its order is that in which Python 2 listed a
# set of letters in 2015, so that weights of that time can be loaded. Targets use the first symbols, sources the others.

# %%
print(f"{len(SYMBOLS)} symbols")
print(f"in targets: {' '.join(SYMBOLS[:NUM_OUTPUTS])}  (0 to {NUM_OUTPUTS - 1})")
print(f"in inputs:  {' '.join(SYMBOLS[NUM_OUTPUTS:].replace(' ', '␣'))}  ({NUM_OUTPUTS} to {len(SYMBOLS) - 1})")

# %% [markdown]
# ## Masks
#
# All rows of a batch have the same length, so short ones are padded with 0. The id 0 is also the digit 0: only the mask
# distinguishes them. It is 1 at a symbol and 0 at padding. The notebook uses the mask of the inputs and not that of the
# targets, which has no effect if all targets have the same length ([lesson 6](6-exercises.md)).

# %%
for row in range(len(samples.inputs)):
    print("input      ", *(f"{number:2d}" for number in samples.inputs[row]))
    print("input mask ", *(f"{number:2.0f}" for number in samples.input_masks[row]))
    print("target     ", *(f"{number:2d}" for number in samples.targets[row]))
    print("target mask", *(f"{number:2.0f}" for number in samples.target_masks[row]))
    print()

# %% [markdown]
# ## Twenty digits
#
# The lessons use twenty digits. Words have three to five letters, so the inputs differ in length, and the position of a
# late word varies more than that of an early one. Each row of the picture is one input: letters have
# no color, spaces the strongest, and the padding after the end a weak one. The first spaces have similar positions; the
# positions of the last ones vary widely.

# %%
twenty_digits = draw_digits(SAMPLES, 20, 20, np.random.default_rng(2))
lengths, deviations = twenty_digits.lengths, twenty_digits.starts[:, :20].std(axis=0)
print(f"letters and spaces: {lengths.mean():.1f} on average, {lengths.min()} to {lengths.max()}")
print(
    f"standard deviation of the start of a word: {deviations[1]:.1f} for the second, {deviations[-1]:.1f} for the last"
)

shades = (twenty_digits.inputs[:40] == SYMBOLS.index(" ")) + 0.25 * (twenty_digits.input_masks[:40] == 0)
figure = empty_figure(7.2, 2.8)
axes = figure.add_subplot()
axes.imshow(shades, cmap=SHADES, vmin=0, vmax=1, aspect="auto", interpolation="none")
axes.set_xlabel("position in the input", color=MUTED)
axes.set_ylabel("sample", color=MUTED)
Image(to_png(freeze_layout(figure), 100), alt="Spaces in forty inputs: aligned at the beginning, scattered at the end")

# %% [markdown]
# Chance accuracy is the lower bound for a trained network: a guess that knows the length of the target has a tenth of
# the digits and the `#` correct.

# %%
print(f"chance: symbol accuracy {(20 * 0.1 + 1) / 21:.3f}")

# %% [markdown]
# ## Shapes
#
# The lessons compare two networks. Both begin with a GRU of 10 units that reads one-hot letters: each letter is a row
# of 27 numbers, one of which is 1. The first network uses only the GRU's last state, the *code*
# ([lesson 2](2-bottleneck.md)). The second attends to all states at every target position
# ([lesson 3](3-attention.md)). The shapes of a batch show each layer: samples × positions × units.

# %%
batch = draw_digits(BATCH_SIZE, 20, 20, np.random.default_rng(1))
networks = {}
for name, kind in {"without attention": "repeat", "with attention": "attention"}.items():
    torch.manual_seed(1)
    networks[name] = SpelledDigitsNetwork(DigitsArchitecture(kind))
    print(f"{name}:")
    for layer in layer_shapes(networks[name], batch):
        print(f"  {layer.name:22}{layer.shape}")

# %% [markdown]
# The softmax layer takes a table, so the 21 positions of all samples become rows of one table and are reshaped
# afterwards.
#
# ## Parameters and their gradients
#
# A parameter without a gradient keeps its initial value. One backward pass shows whether every parameter is connected:
# the loss of a batch is differentiated with respect to each parameter, and no gradient may be zero.

# %%
for name, network in networks.items():
    parameters, norms = parameter_shapes(network), gradient_norms(network, batch)
    total = sum(int(np.prod(shape)) for _, shape in parameters)
    rows = [
        f"| `{parameter}` | {shape} | {norm:.1e} |" for (parameter, shape), norm in zip(parameters, norms, strict=True)
    ]
    head = f"**{name.capitalize()}: {total:,} parameters.**\n\n| parameter | shape | gradient norm |"
    display(Markdown("\n".join([head, "|---|---|--:|", *rows])))
    assert min(norms) > 0

# %% [markdown]
# All parameters are connected. The exponents of the second table, drawn below, differ by much more than those of the
# first. The decoder's LSTM and the query projection have tiny gradients: at initialization all encoder states are
# similar and all weights are small, so the query has nearly no effect yet. This is why accuracy with attention rises
# late ([lesson 3](3-attention.md)). In the equations of that lesson, `query_projection` is $W$, `key_projection` is $U$
# and `energy` is $v$.

# %%
names, norms = [name for name, _ in parameters], gradient_norms(networks["with attention"], batch)
print(f"the largest gradient is {max(norms) / min(norms):.0e} times the smallest: {names[int(np.argmin(norms))]}")

figure = empty_figure(7.2, 4.2)
axes = figure.add_subplot()
axes.plot(norms[::-1], names[::-1], "o", color=ACCENT)
style_axes(axes)
axes.set_xscale("log")
axes.set_xlabel("gradient norm at initialization", color=MUTED)
Image(
    to_png(freeze_layout(figure), 100),
    alt="Gradients at initialization, from large at the output to tiny at the decoder's LSTM and query",
)

# %% [markdown]
# ## Gradient check
#
# A derivative is a limit of differences, so it can be checked numerically: move all parameters by a small step in a
# random direction, forwards and backwards, and compare the change of the loss with the derivative. In double precision
# both agree to many digits.


# %%
def directional_derivatives(network: SpelledDigitsNetwork, step_size: float = 1e-5) -> tuple[float, float]:
    """Return the derivative of the loss in a random direction: by backpropagation, and by a difference quotient.

    Args:
        network: Network in double precision.
        step_size: Step of the difference quotient.
    """
    samples = draw_digits(5, 20, 20, np.random.default_rng(3))
    inputs, targets = to_tensors(samples), torch.from_numpy(samples.targets).long().flatten()
    parameters = [parameter for parameter in network.parameters() if parameter.requires_grad and parameter.numel()]
    directions = [torch.randn_like(parameter) for parameter in parameters]

    def _compute_loss(step: float) -> torch.Tensor:
        for parameter, direction in zip(parameters, directions, strict=True):
            parameter.data += step * direction
        loss = torch.nn.functional.cross_entropy(network(*inputs, 21).logits.flatten(0, 1), targets)
        for parameter, direction in zip(parameters, directions, strict=True):
            parameter.data -= step * direction
        return loss

    gradients = torch.autograd.grad(_compute_loss(0.0), parameters)
    exact = sum((g * d).sum() for g, d in zip(gradients, directions, strict=True))
    with torch.no_grad():
        return float(exact), float((_compute_loss(step_size) - _compute_loss(-step_size)) / (2 * step_size))


for name, network in networks.items():
    exact, numerical = directional_derivatives(network.double())
    print(f"{name}: backpropagation {exact:.9f}, difference quotient {numerical:.9f}")

# %% [markdown]
# ## Try it
#
# ```sh
# pellucid recipe digits-data --run runs/digits-data
# ```
#
# prints samples, shapes and gradients and writes them as a report. In the notebook, draw the batch with
# `draw_digits(BATCH_SIZE, 1, 20, …)`: which shapes change, and which do not?
