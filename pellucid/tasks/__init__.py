"""Tasks: one file per task, each of which defines one Task object.

May import everything up to `evaluation`. Start reading in task.py, then tag.py. This file imports nothing, because
`tasks.task_settings` is needed before any network is known.
"""
