"""What the recipes of spelled digits share.

Imports: config, data, decoding, errors, evaluation, files, kernels, model, reporting, training, viewer,
    worker_pool.
Start with: study.py.
"""
