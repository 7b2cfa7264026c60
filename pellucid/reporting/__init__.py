"""Terminal tables and progress, matplotlib figures.

Imports: argument_checks, config, data, decoding, errors, evaluation, kernels, shapes, tasks, training.
Start with: terminal.py.
"""
