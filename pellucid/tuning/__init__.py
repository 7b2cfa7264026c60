"""Hyperparameter search, by one process or several; storages of its study: a folder, a PostgreSQL database.

Imports: argument_checks, config, data, errors, file_lock, files, run_folder, training, viewer, worker_pool.
Start with: search.py.
"""
