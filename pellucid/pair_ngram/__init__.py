"""Pair n-gram models of sources and targets, without a network: smoothing, search.

Imports: alignment, argument_checks, config, data, errors, kernels.
Start with: pair_ngram.py.
"""
