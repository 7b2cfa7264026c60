"""Losses, optimizer, the loop of events, checkpoints, run folder.

Imports: argument_checks, config, data, decoding, error_messages, errors, evaluation, file_lock, files, inspection,
    kernels, model, pair_ngram, tasks, version, worker_pool.
Start with: loop.py.
"""
