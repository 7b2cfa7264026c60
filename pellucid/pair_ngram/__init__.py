"""Pair n-gram models of sources and targets: alignment, Kneser-Ney smoothing, search and scores.

Modules import NumPy, and of Pellucid only config, data and kernels; no module imports torch.
Start reading in `pair_ngram`.
"""
