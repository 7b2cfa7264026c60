"""The files of a run folder, for trainings and for predictions, which need no training code.

Imports: alignment, argument_checks, config, data, decoding, error_messages, errors, file_lock, files, folder_lock,
    limits, model, pair_ngram, tasks, version.
Start with: predictor_loader.py.

* run_files: names of the files; settings, vocabularies and members.
* predictor_loader: `pellucid.load`; run_parts: settings, pair n-gram model and confidence of its predictors.
* tensor_file, model_file, pair_ngram_file: parameters in safetensors files, as arrays; network_file, torch_tensors: the
  same as tensors of PyTorch.
* progress, log, log_records: the progress of the training, and the log of its events.
* provisional_weight: the weight of the pair n-gram model during the training.
* unfinished_training: trainings that have not reached their end; environment: software and processor, for the log.
* lock, initialization: the folder during a training, and its first files.
"""
