"""Decoding over one step protocol: greedy, beam, sampling, forced; constraints, ensembles, the Trace.

Imports: arguments, config, data, error_messages, errors, kernels, model, tasks.
Start with: predictor.py.
"""
