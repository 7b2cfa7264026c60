"""One object per task: transduce, tag, classify, point, tag-and-classify.

Imports: argument_checks, config, data, decoding, errors, evaluation, model, shapes.
Start with: task.py.
"""
