"""Compile the kernels and the functions of the pair n-gram model, so that the tests load them from the disk."""

from pellucid.config.settings import DataConfig
from pellucid.data.examples import Example
from pellucid.data.tokenizers import build_tokenizers
from pellucid.data.vocabulary import learn_vocabularies
from pellucid.kernels.kernel_loader import load_kernels
from pellucid.pair_ngram.predictor import fit_pair_ngram_predictor

if __name__ == "__main__":
    load_kernels()
    pairs, tokenizers = (
        [Example("ab", "xy"), Example("ba", "yx"), Example("abb", "xyy")],
        build_tokenizers(DataConfig()),
    )
    predictor = fit_pair_ngram_predictor(pairs, tokenizers, learn_vocabularies(pairs, tokenizers, 1))
    assert predictor is not None, "pairs that can be aligned"
    predictor.nbest(pairs, 2)
    predictor.model.log_probability([4, 5], [4, 5])
