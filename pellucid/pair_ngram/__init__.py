"""Pair n-gram models of sources and targets, without a network: alignment, smoothing, search.

Imports: data, kernels.
Start with: pair_ngram.py.
"""
