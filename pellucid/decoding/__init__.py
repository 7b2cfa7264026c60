"""Decoding over one step protocol: greedy, beam, sampling, forced; constraints, ensembles, the Trace.

Imports: alignment, argument_checks, config, data, error_messages, errors, kernels, model, pair_ngram.
Start with: predictor.py.
"""
