"""Terminal tables and progress, matplotlib figures.

Imports: argument_checks, config, decoding, errors, evaluation, kernels, tasks, training.
Start with: terminal.py.
"""
