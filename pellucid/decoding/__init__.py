"""Decoding over one step protocol: greedy, beam, sampling, forced; constraints, ensembles, the Trace.

Imports: alignment, argument_checks, config, data, error_messages, errors, kernels, model, pair_ngram, shapes.
Start with: base_predictor.py.

* base_predictor, base_transducer: methods of predictors, for every backend; predictor, transducer: those of PyTorch.
* beam_steps: the steps of beam search, for every backend; beam_search, topk: their parts in PyTorch and kernels.
"""
