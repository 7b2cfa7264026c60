"""The file README.md of an export."""

from pellucid.export.onnx_settings import ExportedSettings


def export_readme(settings: ExportedSettings) -> str:
    """Return the text of the file.

    Args:
        settings: Settings of the export.
    """
    search, note = settings.search, ""
    if settings.pair_ngram_weight:
        note = (
            "\n**Not exported:** `pellucid predict` ranks the outputs of this run by the network and by a pair n-gram "
            f"model, whose weight is {settings.pair_ngram_weight:g}. This folder holds the network alone: its outputs "
            "are those of `pellucid predict --no-pair-ngram`.\n"
        )
    return f"""# Network exported by {settings.created_by}

| file | content |
|---|---|
| `encoder.onnx` | from source ids to the memory and the initial state of the decoder |
| `decoder_step.onnx` | one step of the decoder, with attention |
| `pellucid.json` | symbols, Unicode normalization, search settings; also in the metadata of the graphs |
| `beam_search.py` | beam search in Python; needs NumPy and ONNX Runtime |

The graphs use ONNX operators of version {settings.opset}; weights are stored in {settings.weights}.
{note}
## Prediction

```sh
pip install numpy onnxruntime
python beam_search.py . words.txt > outputs.txt
```

`words.txt` has one source per line. In Python:

```python
from beam_search import OnnxModel

output = OnnxModel(".").decode("word")[0]
print(output.text, output.log_probability, output.attention.shape)
```

## Graphs

B sources, S source positions, R hypotheses: K of each source, adjacent, so that R = B · K. Ids are int64.

`encoder.onnx` reads `ids` (B, S) and `lengths` (B). Ids beyond the length of a row change nothing. Its outputs are the
initial state, with one row per source, and the inputs of all decoder steps: `memory` (B, S, units), `keys`, and others
that the network needs.

`decoder_step.onnx` reads `symbols` (R), the previous symbol of each hypothesis, 1 (begin) at the first step; the state
(R rows); and what all steps share (B rows), with `lengths`. It returns

* `log_probabilities` (R, symbols): natural logarithms; those of padding, begin and unknown symbol are −∞,
* `attention_weights` (R, S), the mean over the heads,
* `next_hidden` and the other parts of the next state: `next_X` is the input `X` of the next step.

Ids of symbols: 0 padding, 1 begin, 2 end, 3 unknown; symbol i of `pellucid.json` has the id i + 4. Features have ids
above those of the source symbols, and precede them. With `copies`, the target id V + p is the symbol at source position
p, where V is the number of target ids.

The beam has {search.beam_size} hypotheses by default; an output has at most {search.max_length} symbols.
"""
