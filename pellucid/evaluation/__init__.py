"""Metrics, confidence intervals, significance, calibration, alignment.

Imports: config, data, decoding, errors.
Start with: assessment.py.
"""
