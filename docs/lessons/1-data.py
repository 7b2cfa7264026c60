# %% [markdown]
# # 1. The data and the networks
#
# [All lessons](README.md) · [this page as a notebook](1-data.ipynb) · next: [2. The bottleneck](2-bottleneck.md)
#
# **What does a network see of "nine eight", and does every one of its numbers count?**
#
# The task is the one of a blog of 2015 and a course notebook of 2016: a row of digits comes in spelled out, letter by
# letter, and must be written as digits. It is easy for us and it has everything that makes translation hard: the two
# sides differ in length, the words differ in length, and nothing says where a word begins but the letters themselves.

# %%
SAMPLES = 5_000
BATCH = 100

# %%
import numpy as np
import torch
from IPython.display import Image, Markdown, display

from pellucid.data.synthetic import NUM_OUTPUTS, SYMBOLS, draw_digits
from pellucid.recipes.digits.analysis import gradient_norms, layer_shapes
from pellucid.recipes.digits.networks import DigitsArchitecture, DigitsNetwork, parameter_shapes
from pellucid.recipes.digits.training import to_tensors
from pellucid.reporting.figures import ACCENT, MUTED, SHADES, empty_figure, freeze_layout, style_axes, to_png

# %% [markdown]
# ## Pairs
#
# A sample is drawn, never read from a file: a number of digits, each of the ten as likely, spelled out with one space
# between words. The target is the digits, closed by `#`.

# %%
few = draw_digits(3, 1, 2, np.random.default_rng(1))
for source, target in few.texts():
    print(f"{source!r} → {target!r}")

# %% [markdown]
# Networks take numbers. One table serves both sides; its order is the one in which Python 2 happened to list a set of
# letters in 2015, kept so that old weights still fit. Targets use the first symbols, inputs the others.

# %%
print(f"{len(SYMBOLS)} symbols")
print(f"in targets: {' '.join(SYMBOLS[:NUM_OUTPUTS])}  (0 to {NUM_OUTPUTS - 1})")
print(f"in inputs:  {' '.join(SYMBOLS[NUM_OUTPUTS:].replace(' ', '␣'))}  ({NUM_OUTPUTS} to {len(SYMBOLS) - 1})")

# %% [markdown]
# ## Masks
#
# Rows of a batch must be equally long, so short ones are padded with 0. But 0 is also the digit 0! Only the mask tells
# the two apart: it is 1 where a symbol stands. In the notebook the mask of the inputs is used and the mask of the
# targets is not, which does no harm as long as all targets have the same length ([lesson 6](6-exercises.md)).

# %%
for row in range(len(few.inputs)):
    print("input      ", *(f"{number:2d}" for number in few.inputs[row]))
    print("its mask   ", *(f"{number:2.0f}" for number in few.input_masks[row]))
    print("target     ", *(f"{number:2d}" for number in few.targets[row]))
    print("its mask   ", *(f"{number:2.0f}" for number in few.target_masks[row]))
    print()

# %% [markdown]
# ## Twenty digits
#
# The lessons take twenty digits. Words have three to five letters, so the inputs differ in length, and the later a
# word stands, the less its number alone says where it begins. Each row of the picture is one input: white where a
# letter stands, dark where a space stands, light blue behind its end. The first gaps lie close together; the last are
# everywhere.

# %%
many = draw_digits(SAMPLES, 20, 20, np.random.default_rng(2))
lengths, spread = many.lengths, many.starts[:, :20].std(axis=0)
print(f"letters and spaces: {lengths.mean():.1f} on average, {lengths.min()} to {lengths.max()}")
print(f"standard deviation of where a word begins: {spread[1]:.1f} for the second, {spread[-1]:.1f} for the last")

shown = (many.inputs[:40] == SYMBOLS.index(" ")) + 0.25 * (many.input_masks[:40] == 0)
figure = empty_figure(7.2, 2.8)
axes = figure.add_subplot()
axes.imshow(shown, cmap=SHADES, vmin=0, vmax=1, aspect="auto", interpolation="none")
axes.set_xlabel("position in the input", color=MUTED)
axes.set_ylabel("sample", color=MUTED)
Image(to_png(freeze_layout(figure), 100), alt="Spaces in forty inputs: in line at first, scattered at the end")

# %% [markdown]
# What is guessing worth? Whoever knows the length of the target and guesses every digit gets a tenth of the digits and
# the `#` right. A network must beat this number to have read anything.

# %%
print(f"the floor: {(20 * 0.1 + 1) / 21:.3f} of the symbols")

# %% [markdown]
# ## Shapes
#
# Two networks will read these samples. Both begin with a GRU of 10 units that reads the letters, one-hot: each letter
# is a row of 27 numbers, one of them 1. The first network keeps only the GRU's last state, the *code*
# ([lesson 2](2-bottleneck.md)). The second looks at all states, anew for each digit ([lesson 3](3-attention.md)). To
# see what each layer does, pass a batch through it and look at the shapes: samples × positions × units.

# %%
batch = draw_digits(BATCH, 20, 20, np.random.default_rng(1))
networks = {}
for name, kind in {"without attention": "repeat", "with attention": "attention"}.items():
    torch.manual_seed(1)
    networks[name] = DigitsNetwork(DigitsArchitecture(kind))
    print(f"{name}:")
    for layer in layer_shapes(networks[name], batch):
        print(f"  {layer.name:22}{layer.shape}")

# %% [markdown]
# The softmax wants a table, not a block: so 21 positions of each sample are laid out as rows of one table, and put
# back afterwards.
#
# ## Parameters and their gradients
#
# Every parameter must be reached by a gradient, or it will stay as it was drawn. One pass shows it: the cost of a batch
# is differentiated by each parameter, and no gradient may be zero.

# %%
for name, network in networks.items():
    listed, norms = parameter_shapes(network), gradient_norms(network, batch)
    total = sum(int(np.prod(shape)) for _, shape in listed)
    rows = [f"| `{each}` | {shape} | {norm:.1e} |" for (each, shape), norm in zip(listed, norms, strict=True)]
    head = f"**{name.capitalize()}: {total:,} parameters.**\n\n| parameter | shape | norm of its gradient |"
    display(Markdown("\n".join([head, "|---|---|--:|", *rows])))
    assert min(norms) > 0

# %% [markdown]
# All are connected. But look at the exponents of the second table, drawn below: they differ by far more than in the
# first. The decoder's LSTM and the query, which together ask where to look, get next to nothing: at the start all
# states of the encoder look alike and all weights are small, so what is asked changes nothing yet. This is why
# attention takes off late, as [lesson 3](3-attention.md) will show.

# %%
names, norms = [name for name, _ in listed], gradient_norms(networks["with attention"], batch)
print(f"the largest gradient is {max(norms) / min(norms):.0e} times the smallest: {names[int(np.argmin(norms))]}")

figure = empty_figure(7.2, 4.2)
axes = figure.add_subplot()
axes.plot(norms[::-1], names[::-1], "o", color=ACCENT)
style_axes(axes)
axes.set_xscale("log")
axes.set_xlabel("norm of the gradient at the start", color=MUTED)
Image(
    to_png(freeze_layout(figure), 100),
    alt="Gradients at the start, from large at the output to tiny at the decoder's LSTM and query",
)

# %% [markdown]
# ## Are the gradients right?
#
# A derivative is a limit, so it can be checked without any calculus: move all parameters a little in some direction,
# there and back, and see how the cost changes. In double precision the two should agree to many digits.


# %%
def slopes(network: DigitsNetwork, size: float = 1e-5) -> tuple[float, float]:
    """The slope of the cost in a random direction: by differentiation, and by a difference."""
    small = draw_digits(5, 20, 20, np.random.default_rng(3))
    inputs, targets = to_tensors(small), torch.from_numpy(small.targets).long().flatten()
    parameters = [parameter for parameter in network.parameters() if parameter.requires_grad and parameter.numel()]
    directions = [torch.randn_like(parameter) for parameter in parameters]

    def cost(step: float) -> torch.Tensor:
        for parameter, direction in zip(parameters, directions, strict=True):
            parameter.data += step * direction
        value = torch.nn.functional.cross_entropy(network(*inputs, 21).logits.flatten(0, 1), targets)
        for parameter, direction in zip(parameters, directions, strict=True):
            parameter.data -= step * direction
        return value

    gradients = torch.autograd.grad(cost(0.0), parameters)
    exact = sum((g * d).sum() for g, d in zip(gradients, directions, strict=True))
    with torch.no_grad():
        return float(exact), float((cost(size) - cost(-size)) / (2 * size))


for name, network in networks.items():
    exact, measured = slopes(network.double())
    print(f"{name}: differentiated {exact:.9f}, measured {measured:.9f}")

# %% [markdown]
# ## Try it
#
# ```sh
# pellucid recipe digits-data --out runs/digits-data
# ```
#
# prints all of this and writes it as a report. In the notebook, draw the batch with `draw(BATCH, 1, 20, …)`: which
# shapes change, and which do not?
