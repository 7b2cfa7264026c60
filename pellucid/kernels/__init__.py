"""Backends: compiled kernels for the CPU and GPU, each equal to its PyTorch version by test.

Imports: data, errors, file_lock.
Start with: dispatch.py.
"""
