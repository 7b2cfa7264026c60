"""Terminal tables and progress, matplotlib figures.

Imports: argument_checks, config, data, decoding, errors, evaluation, kernels, run_folder, shapes, tasks, training.
Start with: terminal.py.
"""
