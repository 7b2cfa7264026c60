"""Losses, optimizer, the loop of events, checkpoints, run folder.

Imports: arguments, config, data, decoding, errors, evaluation, files, inspection, kernels, model, tasks, version,
    wording, worker_pool.
Start with: loop.py.
"""
