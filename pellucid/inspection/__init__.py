"""Attribution, states, gates, principal components, attention statistics: numbers from Traces.

Imports: arguments, config, data, decoding, errors, kernels, model.
Start with: replay.py.
"""
