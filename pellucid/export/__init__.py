"""Export of trained networks to other formats: graphs of ONNX.

Imports: config, data, decoding, errors, evaluation, files, run_folder, runtime, version.
Start with: onnx_export.py.
"""
