"""Metrics, confidence intervals, significance, calibration, alignment.

Imports: arguments, config, data, decoding, errors.
Start with: assessment.py.
"""
