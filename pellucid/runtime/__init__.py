"""Prediction in NumPy: the network of a run without PyTorch and Numba.

Imports: argument_checks, config, data, decoding, errors, run_folder, shapes.
Start with: loader.py.

* support: what the runtime computes, and the error for what it does not.
* parameters: the parameters of a network, as arrays by their role.
* run_reader: a run folder, read without PyTorch.
* cells, encoder, attention, decoder: the equations of the network.
* topk, inference: the best symbols of a step; hypotheses of one network or of an ensemble, and scores of targets.
* predictor, loader: the predictor, with the methods of `Predictor`; `load`.
"""
