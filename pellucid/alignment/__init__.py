"""Monotone alignment of the symbols of sources and targets: by expectation-maximization, or by attention weights.

Imports: argument_checks, errors, kernels.
Start with: types.py.
"""
