"""One object per task: transduce, tag, classify, point.

Imports: argument_checks, config, data, decoding, errors, evaluation, model, shapes.
Start with: task.py.
"""
