"""Metrics, confidence intervals, significance, calibration, alignment.

Imports: argument_checks, config, data, decoding, error_messages, errors, shapes.
Start with: assessment.py.
"""
