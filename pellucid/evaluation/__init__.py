"""Metrics, confidence intervals, significance, calibration, alignment.

Imports: argument_checks, config, data, decoding, error_messages, errors, record_file, row_file, shapes.
Start with: assessment.py.
"""
