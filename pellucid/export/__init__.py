"""Export of trained networks to other formats: graphs of ONNX, and web pages.

Imports: config, data, decoding, errors, evaluation, files, run_folder, runtime, tasks, version, viewer.
Start with: onnx_export.py.
"""
