"""What the recipes of wrong letters share.

Imports: data, model, reporting, viewer, worker_pool.
Start with: study.py.
"""
