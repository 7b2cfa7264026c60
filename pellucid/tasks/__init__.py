"""One object per task: transduce, tag, classify, point.

Imports: config, data, decoding, errors, evaluation, model.
Start with: task.py.
"""
