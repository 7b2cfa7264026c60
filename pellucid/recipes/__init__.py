"""Reference experiments, each from data to report.

Imports: config, data, decoding, error_messages, errors, evaluation, file_lock, files, inspection, kernels, model,
    pair_ngram, reporting, run_folder, shapes, tasks, training, version, viewer, worker_pool.
Start with: recipe.py.
"""
