"""Recipes that translate English to Spanish: the decoder of 2016 and Pellucid's own models.

Imports: config, data, decoding, errors, evaluation, files, model, pair_ngram, reporting, run_folder, shapes,
    training, viewer, worker_pool.
Start with: training.py.
"""
