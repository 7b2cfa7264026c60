"""Pair n-gram models of sources and targets, without a network: alignment, smoothing, search.

Imports: argument_checks, config, data, errors, kernels.
Start with: pair_ngram.py.
"""
