"""Modules that hold parameters: embedding, recurrent layers, encoder, attention, decoder, heads.

Imports: config, data, errors, kernels, worker_pool.
Start with: network.py.
"""
