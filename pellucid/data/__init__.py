"""Readers, tokenizers, vocabularies, batches, Arrow corpora, synthetic data.

Imports: config, errors, files.
Start with: examples.py.
"""
