"""Readers, tables in memory, tokenizers, vocabularies, batches, Arrow corpora, synthetic data.

Imports: argument_checks, config, error_messages, errors, files, folder_lock, limits, shapes.
Start with: examples.py.
"""
