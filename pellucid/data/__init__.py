"""Readers, tokenizers, vocabularies, batches, Arrow corpora, synthetic data.

Imports: arguments, config, errors, files.
Start with: examples.py.
"""
