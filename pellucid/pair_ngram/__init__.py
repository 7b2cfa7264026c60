"""Pair n-gram models of sources and targets, without a network: smoothing, search.

Imports: alignment, argument_checks, data, dependencies, errors, kernels, shapes.
Start with: model.py.
"""
