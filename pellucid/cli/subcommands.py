"""The subcommands and their summaries."""

SUBCOMMANDS = {
    "split": "divide a file of pairs into files for training and testing",
    "prepare": "encode a training set of any size, for trainings that map it into memory",
    "train": "train a model on pairs of sequences, or resume a training",
    "tune": "search hyperparameters",
    "predict": "decode sources, one output line per input line",
    "score": "compute the log-probabilities of given targets, one line per pair",
    "align": "align source and target symbols, one line per pair",
    "audit": "find suspicious targets in a file of pairs, and say why",
    "evaluate": "evaluate models on pairs, with confidence intervals and significance tests",
    "look": "show outputs and attention weights, in the browser, a file or the terminal",
    "export": "export the network of a run: ONNX graphs, or a web page that runs it",
    "share": "write a folder for prediction with a model card, or push it to the Hugging Face Hub",
    "download": "download a shared model from the Hugging Face Hub to a folder",
    "check": "print the checksums of the files of a run folder, or compare them with a list",
    "serve": "answer HTTP requests with trained models",
    "bench": "measure speed and memory",
    "data": "list or download the published data sets of the recipes",
    "recipe": "run a reference experiment, from data to report",
    "completion": "print a script that completes command lines in bash, zsh or fish",
}
"""Summary of each subcommand, in the order of the help."""
