"""Settings: frozen structs, presets, checks across settings, TOML.

Imports: arguments, errors, files, tasks, wording.
Start with: settings.py.
"""
