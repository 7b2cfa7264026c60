"""Settings: frozen structs, presets, checks across settings, TOML.

Imports: arguments, error_messages, errors, files, tasks.
Start with: settings.py.
"""
