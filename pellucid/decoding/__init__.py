"""Decoding over one step protocol: greedy, beam, sampling, forced; constraints, ensembles, the Trace.

Imports: arguments, config, data, errors, kernels, model, tasks, wording.
Start with: predictor.py.
"""
