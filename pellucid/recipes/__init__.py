"""Reference experiments, each from data to report.

Imports: config, data, decoding, errors, evaluation, files, inspection, kernels, model, pair_ngram, reporting,
    run_folder, shapes, tasks, training, viewer, worker_pool.
Start with: recipe.py.
"""
