"""Terminal tables and progress, matplotlib figures.

Imports: argument_checks, config, decoding, evaluation, kernels, tasks, training.
Start with: terminal.py.
"""
