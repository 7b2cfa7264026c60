"""Hyperparameter search.

Imports: argument_checks, config, errors, files, kernels, training, viewer, worker_pool.
Start with: search.py.
"""
