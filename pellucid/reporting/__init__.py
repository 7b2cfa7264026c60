"""Terminal tables and progress, matplotlib figures.

Imports: arguments, config, decoding, evaluation, kernels, tasks, training.
Start with: terminal.py.
"""
