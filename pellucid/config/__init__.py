"""Settings: frozen structs, presets, checks across settings, TOML.

Imports: argument_checks, error_messages, errors, files, tasks.
Start with: settings.py.
"""
