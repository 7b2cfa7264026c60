"""Readers, tokenizers, vocabularies, batches, Arrow corpora, synthetic data.

Imports: argument_checks, config, errors, files.
Start with: examples.py.
"""
