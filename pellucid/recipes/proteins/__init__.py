"""Recipes on proteins: subcellular localization, and the stored networks of 2016.

Imports: data, errors, evaluation, files, model, reporting, shapes, viewer.
Start with: localization.py.
"""
