"""Modules that hold parameters: embedding, recurrent layers, encoder, attention, decoder, output layers.

Imports: config, data, errors, kernels, worker_pool.
Start with: network.py.
"""
