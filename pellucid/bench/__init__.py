"""Speed measurements: cases, machine, lower bounds of time (roofline), profiles of training.

Imports: config, data, decoding, errors, kernels, model, reporting, run_folder, tasks, training, version.
Start with: measurement.py.
"""
