"""What the recipes of proteins share.

Imports: data, errors, evaluation, files, model, reporting, viewer.
Start with: places.py.
"""
