"""Gradients, optimizer, the loop of events, checkpoints, snapshots.

Imports: argument_checks, config, data, decoding, dependencies, errors, evaluation, files, inspection, kernels,
    launched_workers, model, pair_ngram, process_limits, run_folder, shapes, tasks, version, worker_pool.
Start with: loop.py.
"""
