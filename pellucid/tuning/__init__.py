"""Hyperparameter search.

Imports: argument_checks, config, errors, files, kernels, run_folder, training, viewer, worker_pool.
Start with: search.py.
"""
