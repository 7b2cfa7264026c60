"""Metrics, confidence intervals, significance, calibration, alignment.

Imports: argument_checks, config, data, decoding, errors.
Start with: assessment.py.
"""
