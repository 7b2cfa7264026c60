"""Export of trained networks to other formats: graphs of ONNX.

Imports: config, data, decoding, errors, evaluation, files, run_evaluation, run_folder, version.
Start with: onnx_export.py.
"""
