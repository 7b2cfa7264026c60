"""Modules that hold parameters, and losses: embedding, recurrent layers, encoder, attention, decoder, output layers.

Imports: argument_checks, config, data, errors, kernels, process_limits, shapes, worker_pool.
Start with: network.py.
"""
