"""The page that shows a model: its data schema, its local server, reports.

Imports: config, data, decoding, dependencies, error_messages, errors, evaluation, files, http_requests, inspection,
    model, reporting, run_folder, shapes, tasks, training, version.
Start with: schema.py.
"""
