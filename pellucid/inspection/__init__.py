"""Attribution, states, gates, principal components, attention statistics: numbers from Traces.

Imports: argument_checks, config, data, decoding, errors, kernels, model, shapes.
Start with: replay.py.
"""
