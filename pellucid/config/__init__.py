"""Settings: frozen structs, presets, settings of the tasks, checks across settings, TOML.

Imports: argument_checks, error_messages, errors, files.
Start with: settings.py.
"""
