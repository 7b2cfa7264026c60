"""One object per task: transduce, tag, classify, point.

Imports: arguments, config, data, decoding, errors, evaluation, model.
Start with: task.py.
"""
