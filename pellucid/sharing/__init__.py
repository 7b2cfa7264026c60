"""Sharing of trained models: folders that hold what prediction needs, and repositories of the Hugging Face Hub.

Imports: argument_checks, config, data, decoding, dependencies, errors, evaluation, files, model, reporting,
    run_folder, runtime, tasks, version.
Start with: shared_folder.py.

* manifest: the list of the files with their checksums, and the rules on what may be in a shared folder.
* shared_folder: writing such a folder; training_facts, hub_card: the model card.
* hub: pushing and downloading, with the package huggingface_hub.
* pretrained_loader: `from_pretrained`; registration: the methods of predictors.
"""
