"""Recipes that find the wrong letter of a word.

Imports: config, data, decoding, files, inspection, model, reporting, run_folder, shapes, training, viewer,
    worker_pool.
Start with: training.py.
"""
