"""Hyperparameter search.

Imports: arguments, config, errors, files, kernels, training, viewer, worker_pool.
Start with: search.py.
"""
