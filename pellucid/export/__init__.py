"""Export of trained networks to other formats: graphs of ONNX, and web pages.

Imports: config, data, decoding, dependencies, errors, evaluation, files, run_folder, runtime, shapes,
    tasks, version, viewer.
Start with: onnx_export.py.

* onnx_graph, onnx_encoder, onnx_decoder: the two graphs; quantization: 8-bit weights.
* onnx_settings, readme: the files beside them; beam_search: a stand-alone program, copied into each export.
* onnx_export: all files of an export; export_check: their metric; support: what can be exported.
* web_page: a page that runs networks in the browser; stored_parameters: their weights.
"""
