"""Measured speed: cases, machine, the least time that the operations take, profiles of training.

Imports: config, data, decoding, errors, kernels, model, reporting, tasks, training, version.
Start with: measuring.py.
"""
