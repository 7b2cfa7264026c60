"""Search over settings.

Imports: config, errors, files, kernels, training, viewer, worker_pool.
Start with: search.py.
"""
