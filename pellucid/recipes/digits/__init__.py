"""Recipes on spelled digits: the networks of the 2016 notebook and Pellucid's own.

Imports: config, data, decoding, errors, evaluation, files, kernels, model, reporting, run_folder, shapes, tasks,
    training, viewer, worker_pool.
Start with: training.py.
"""
