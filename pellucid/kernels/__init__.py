"""Backends: compiled kernels for the CPU and GPU, each equal to its PyTorch version by test.

Imports: data, error_messages, errors, file_lock, files, shapes.
Start with: dispatch.py.

* backend, dispatch: description of a computation, settings that each backend supports, selection of one.
* types: arguments and results of the CPU kernels.
* argument_checks: types, shapes and lengths of the arrays that CPU kernels take.
* compilation, runtime: Numba and the folder of compiled kernels; aligned memory, threads and signals.
* microkernel: matrix products in AVX-512, in float32 and bfloat16.
* arithmetic, cells, attention: functions that kernels call; attention also projects the keys.
* recurrence, unroll, decoder_step, search, cross_entropy, adam: kernels of the encoder, the decoder over known symbols,
  one decoder step, whole searches, the loss and the optimizer. They take NumPy arrays.
* tensor_functions: the kernels of the network as functions of tensors, with gradients except for decoder steps and
  searches.
* triton_attention, cuda_graphs: the GPU.
"""
