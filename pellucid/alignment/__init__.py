"""Monotone alignment of the symbols of sources and targets: by expectation-maximization, or by attention weights.

Imports: argument_checks, errors, kernels, shapes.
Start with: types.py.
"""
