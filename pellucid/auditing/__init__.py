"""Audits of pairs: out-of-fold predictions, reasons, a worklist with its page, decisions, and sources to label next.

Imports: argument_checks, config, data, decoding, errors, files, kernels, pair_ngram, run_folder, training, viewer,
worker_pool.
Start with: audit.py.
"""
