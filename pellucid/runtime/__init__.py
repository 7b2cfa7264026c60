"""Prediction in NumPy: the network of a run without PyTorch and Numba.

Imports: config, data, errors, run_folder.
Start with: run_reader.py.

* support: what the runtime computes, and the error for what it does not.
* parameters: the parameters of a network, as arrays by their role.
* run_reader: a run folder, read without PyTorch.
"""
