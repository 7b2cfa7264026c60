"""Terminal tables and progress, matplotlib figures.

Imports: config, decoding, evaluation, kernels, tasks, training.
Start with: terminal.py.
"""
