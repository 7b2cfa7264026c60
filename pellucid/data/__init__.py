"""Readers, tables in memory, tokenizers, vocabularies, batches, Arrow corpora, synthetic data.

Imports: argument_checks, config, error_messages, errors, files, limits, shapes.
Start with: examples.py.
"""
