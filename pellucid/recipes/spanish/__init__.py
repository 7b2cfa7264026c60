"""What the recipes of Spanish sentences share.

Imports: config, data, decoding, errors, evaluation, files, model, training, viewer, worker_pool.
Start with: training.py.
"""
