"""Metrics, confidence intervals, significance, calibration, alignment.

Imports: argument_checks, config, data, decoding, errors, shapes.
Start with: assessment.py.
"""
