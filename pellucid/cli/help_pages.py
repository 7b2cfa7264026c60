"""The page of --help of each subcommand: what most people set, with examples. --help-all prints all arguments."""

from textwrap import wrap
from typing import NamedTuple

from pellucid.cli.flag_names import short_name

PAGE_WIDTH = 80
TEXT_COLUMN = 30
"""Column at which the texts of the options begin, from 0."""


class OptionHelp(NamedTuple):
    """One option of a page."""

    flag: str
    """Flag with its hyphens, or the name of a positional argument."""
    value: str
    """Name of its value, or its choices; "" for a switch or a positional argument."""
    text: str


class HelpPage(NamedTuple):
    """The page of --help of a subcommand."""

    usage: str
    """Arguments after the name of the subcommand."""
    summary: str
    options: tuple[OptionHelp, ...]
    examples: tuple[str, ...]
    """Command lines without the name of the program."""


def help_page(verb: str) -> str:
    """Return the page of --help of a subcommand, of at most 40 lines of 80 columns.

    Args:
        verb: Name of the subcommand.
    """
    page = HELP_PAGES[verb]
    lines = [f"usage: pellucid {verb} {page.usage}", "", *wrap(page.summary, PAGE_WIDTH)]
    if page.options:
        lines += ["", *(line for option in page.options for line in _option_lines(option))]
    examples = [f"  pellucid {example}" for example in page.examples]
    return "\n".join([*lines, "", "Examples:", *examples, "", f"All options: pellucid {verb} --help-all"])


def _option_lines(option: OptionHelp) -> list[str]:
    """Return the lines of an option: names at the left, text at the right."""
    letter = short_name(option.flag)
    names = f"{f'{letter}, ' if letter else '    '}{option.flag}" if option.flag.startswith("-") else option.flag
    left = f"  {names} {option.value}".rstrip()
    text = wrap(option.text, PAGE_WIDTH - TEXT_COLUMN, break_on_hyphens=False)
    if len(left) > TEXT_COLUMN - 2:
        text = ["", *text]
    first, *others = text
    return [
        f"{left:<{TEXT_COLUMN}}{first}".rstrip(),
        *(f"{'':<{TEXT_COLUMN}}{line}" for line in others),
    ]


def _validation_file(text: str) -> OptionHelp:
    """Return the option of the validation file, with its default."""
    return OptionHelp("--valid", "FILE", f"{text} (default: a tenth of the sources of TRAIN, at most 2,000)")


_RUN_ARGUMENT = OptionHelp("RUN", "", "folder of a trained run; several: an ensemble")
_BEAM = OptionHelp("--beam-size", "K", "beam size (that of the run: 5 unless set); 1 is greedy search")
_NBEST = OptionHelp("--nbest", "N", "write the N best outputs of each source")
_INPUT = OptionHelp("--input-format", "FORMAT", "tsv, csv, jsonl, parquet, text (by the file name)")
_INPUT_PAIRS = OptionHelp("--input-format", "FORMAT", "auto, tsv, csv, jsonl, parquet (by the file name)")
_ON_RAY = OptionHelp("--on", "ray", "decode on a Ray cluster, to --output FILE")
_DEVICE = OptionHelp("--device", "DEVICE", "cpu, cuda (one GPU) or auto (cpu by default)")
_HEADER = OptionHelp("--header, --no-header", "", "whether the first line of FILE names columns")
_TRAIN_HEADER = OptionHelp("--header, --no-header", "", "whether the first line of TRAIN names columns")
_SOURCE_COLUMN = OptionHelp("--source-column", "NAME", "column of the sources; also --features-column")
_COLUMNS = OptionHelp("--source-column", "NAME", "column of sources; also --target-column, --features-column")
_BAD_LINE = OptionHelp("--on-bad-line", "ACTION", "stop or skip (stop by default)")
_SETTINGS = (
    OptionHelp("--size", "SIZE", "tiny, small, base, large; auto: by number of pairs"),
    OptionHelp("--task", "TASK", "transduce (default), tag, classify, point or tag-and-classify"),
    OptionHelp("--config", "FILE", "TOML file of settings; flags override it"),
    OptionHelp(
        "--source-symbols", "KIND", "characters (default), ipa, words, subwords, a separator; also --target-symbols"
    ),
    OptionHelp("--epochs", "N", "maximum number of epochs; 0: by number of pairs"),
    OptionHelp("--batch-size", "N", "examples per batch; 0: by number of pairs"),
    OptionHelp("--learning-rate", "X", "peak learning rate"),
    OptionHelp("--patience", "N", "stop after N validations without improvement"),
)

HELP_PAGES: dict[str, HelpPage] = {
    "split": HelpPage(
        "FILE --out DIR [options]",
        "Divide a file of pairs at random into files for training and testing, with the same format and columns. Rows "
        "without a target are written to a third file, unlabeled. All rows of a source are in one file.",
        (
            OptionHelp("FILE", "", "pairs: TSV, CSV, JSON lines or Parquet"),
            OptionHelp("--out", "DIR", "folder of the files train, test and unlabeled"),
            OptionHelp("--test-size", "SIZE", "share of the rows with a target, or number of rows (0.1 by default)"),
            OptionHelp(
                "--valid-size",
                "SIZE",
                "size of a validation file, in the same way (default: no such file; train then holds out a tenth)",
            ),
            OptionHelp("--seed", "N", "random seed (1 by default)"),
            OptionHelp("--source-column", "NAME", "column of sources (1 by default); also --target-column"),
            OptionHelp("--group-column", "NAME", "rows of a group, such as a document, are in one file"),
            OptionHelp("--delimiter", "CHAR", "delimiter of CSV: , ; tab or | (default: found from the first lines)"),
            OptionHelp("--input-format", "FORMAT", "tsv, csv, jsonl, parquet (by the file name); not text"),
            _HEADER,
            OptionHelp(
                "--on-bad-line", "ACTION", "stop (default), or skip: list the line, and leave it out of all files"
            ),
        ),
        (
            "split words.csv --out words --source-column old --target-column new",
            "split pairs.tsv --out parts --test-size 400 --valid-size 400",
        ),
    ),
    "prepare": HelpPage(
        "TRAIN [--valid FILE] --out DIR [options]",
        "Encode a training set of any size into a folder, from which trainings read it without loading it into memory. "
        "TRAIN is read twice. Repeat the command to continue an interrupted preparation.",
        (
            OptionHelp("TRAIN", "", "pairs: TSV, CSV, JSON lines or Parquet, also .gz"),
            _validation_file("validation file"),
            OptionHelp("--out", "DIR", "folder of the prepared data, created or continued"),
            OptionHelp("--task", "TASK", "transduce (default), tag, classify; not point or tag-and-classify"),
            _COLUMNS,
            OptionHelp("--source-symbols", "KIND", "characters (default), ipa, words, subwords, or a separator"),
            OptionHelp("--target-symbols", "KIND", "the same for targets"),
            OptionHelp("--train-target", "FILE", "targets, if TRAIN holds sources only; also --valid-target"),
            OptionHelp("--min-count", "N", "rarer symbols are unknown (1 by default)"),
            _TRAIN_HEADER,
            OptionHelp("--on-bad-line", "ACTION", "stop (default), or skip: list the line in DIR/bad-lines.txt"),
        ),
        (
            "prepare pairs.tsv.gz --out prepared",
            "prepare words.csv --out words --source-column old --target-column new",
            "train prepared --run runs/large --time 2h",
        ),
    ),
    "train": HelpPage(
        "TRAIN [--valid FILE] --run DIR [options]",
        "Train a model on pairs of sequences, or resume an unfinished training.",
        (
            OptionHelp("TRAIN", "", "training file: TSV, CSV, JSON lines or Parquet"),
            OptionHelp("--valid", "FILE", "validation file (default: a tenth of TRAIN)"),
            OptionHelp("--run", "DIR", "folder of the run, created or resumed"),
            OptionHelp(
                "--source-column",
                "NAME",
                "column of sources, by name or number (1 by default); also --target-column, --features-column",
            ),
            _TRAIN_HEADER,
            _BAD_LINE,
            *_SETTINGS,
            OptionHelp("--time", "T", "maximum time of each training: 90s, 10m, 2h"),
            OptionHelp("--cell", "CELL", "gru (default) or lstm"),
            OptionHelp(
                "--attention", "TYPE", "additive (default), dot, general, scaled-dot, location, monotonic or none"
            ),
            OptionHelp("--no-pair-ngram", "", "train the network alone, no pair n-gram model"),
            OptionHelp("--hidden-size", "N", "number of hidden units"),
            OptionHelp("--dropout", "P", "probability of dropout"),
            OptionHelp("--seed", "N", "random seed (1 by default)"),
            OptionHelp("--init-from", "RUN", "begin from the model of another run (fine-tuning)"),
            OptionHelp("--ensemble", "N", "train N runs, with N seeds from --seed on"),
            OptionHelp("--jobs", "N", "number of these runs trained in parallel"),
            _DEVICE,
        ),
        (
            "train train.tsv --valid dev.tsv --run runs/a --size tiny --epochs 10",
            "train a.en --train-target a.de -v b.en --valid-target b.de -r runs/b",
            "train train.tsv -v dev.tsv -r runs/c --ensemble 5 --jobs 4",
        ),
    ),
    "tune": HelpPage(
        "TRAIN [--valid FILE] --run DIR [options]",
        "Search hyperparameters, or resume a search. Requires Optuna: pip install 'pellucid[tune]'.",
        (
            OptionHelp("TRAIN", "", "training file, as for train"),
            _validation_file("validation file that scores trials"),
            OptionHelp("--run", "DIR", "folder of the search, created or resumed"),
            OptionHelp("--trials", "N", "total number of trials (30 by default)"),
            OptionHelp("--study-time", "T", "time limit of this call, as 30m; the next call continues"),
            OptionHelp("--jobs", "N", "number of trials trained in parallel"),
            OptionHelp("--shared", "", "search together with other commands in the same --run"),
            OptionHelp("--storage", "URL", "PostgreSQL database through which commands search together"),
            OptionHelp("--space", "FILE", "TOML file with the search space"),
            OptionHelp("--prune", "KIND", "median, halving or none (median by default)"),
            OptionHelp("--metric", "METRIC", "exact_match (default), symbol_error_rate, symbol_accuracy or loss"),
            *_SETTINGS[:4],
            OptionHelp("--epochs", "N", "maximum number of epochs of a trial"),
            OptionHelp("--seed", "N", "random seed (1 by default)"),
        ),
        (
            "tune train.tsv --valid dev.tsv --run runs/search --trials 40 --jobs 4",
            "train train.tsv -v dev.tsv -r runs/best -c runs/search/best.toml",
        ),
    ),
    "predict": HelpPage(
        "RUN [RUN ...] [FILE|-] [options]",
        "Decode sources with a trained model. Each input line has one output line.",
        (
            _RUN_ARGUMENT,
            OptionHelp("FILE", "", "sources; - is standard input (default)"),
            OptionHelp("--output-format", "FORMAT", "text (default), csv (all columns), tsv or jsonl"),
            _SOURCE_COLUMN,
            _INPUT,
            _HEADER,
            _BEAM,
            _NBEST,
            OptionHelp("--sample", "N", "sample N outputs of each source; no search"),
            OptionHelp("--temperature", "X", "temperature of --sample; also --top-k, --top-p"),
            OptionHelp("--max-length", "N", "maximum output length; also --min-length"),
            OptionHelp("--prefix", "TEXT", "beginning of every output; also --prefixes FILE"),
            OptionHelp("--forbid", "SYMBOL", "symbol excluded from outputs; --require: contained in all"),
            OptionHelp("--lexicon", "FILE", "pairs that take precedence over the model"),
            OptionHelp("--fill", "COLUMN", "print FILE with this column's empty cells filled"),
            OptionHelp("--text", "", "decode the words of running text"),
            _BAD_LINE,
            _DEVICE,
            _ON_RAY,
        ),
        (
            "predict runs/a words.txt > outputs.txt",
            "predict runs/a new.csv --output-format csv > outputs.csv",
            "predict runs/a names.csv --fill hebrew > filled.csv",
            "predict runs/a test.tsv --beam-size 8 --nbest 3 --output-format tsv",
            "predict runs/a runs/b words.txt",
        ),
    ),
    "score": HelpPage(
        "RUN [RUN ...] [FILE|-] [options]",
        "Compute the log-probabilities of given targets, one line per pair.",
        (
            _RUN_ARGUMENT,
            OptionHelp("FILE", "", "pairs; - is standard input (default)"),
            OptionHelp("--output-format", "FORMAT", "text (default), csv (all columns), tsv or jsonl"),
            _COLUMNS,
            _INPUT_PAIRS,
            _HEADER,
            _BAD_LINE,
            _DEVICE,
            _ON_RAY,
        ),
        ("score runs/a test.tsv", "score runs/a test.tsv --output-format tsv"),
    ),
    "align": HelpPage(
        "[RUN ...] [FILE|-] [options]",
        "Align source and target symbols, one line per pair: by expectation-maximization on the pairs, or by the "
        "attention of a model.",
        (
            OptionHelp("RUN", "", "folder of a trained run; without it, a model is fitted to FILE"),
            OptionHelp("FILE", "", "pairs; - is standard input (default with RUN)"),
            OptionHelp("--output-format", "FORMAT", "tsv (default), jsonl, phonetisaurus or pharaoh"),
            OptionHelp("--method", "METHOD", "auto (attention with RUN, else em), em or attention"),
            OptionHelp("--max-source", "N", "maximum source symbols of a chunk (2 by default)"),
            OptionHelp("--max-target", "N", "maximum target symbols of a chunk (2 by default)"),
            OptionHelp("--no-insertions", "", "align each target symbol with source symbols"),
            OptionHelp("--no-deletions", "", "align each source symbol with target symbols"),
            OptionHelp("--many-to-many", "", "also chunks with several symbols on both sides"),
            OptionHelp("--source-symbols", "KIND", "without RUN: characters (if not given), ipa, words, a separator"),
            OptionHelp("--target-symbols", "KIND", "the same for targets"),
            _COLUMNS,
            _INPUT_PAIRS,
            _HEADER,
            _BAD_LINE,
            _DEVICE,
        ),
        (
            "align words.tsv --target-symbols words",
            "align words.tsv --target-symbols words --output-format phonetisaurus",
            "align runs/a test.tsv --output-format jsonl",
        ),
    ),
    "audit": HelpPage(
        "FILE [--output CSV] [--html PAGE] [options]",
        "Find suspicious targets in a file of pairs, and say why. Each target is compared with the output of models "
        "that were trained without its source.",
        (
            OptionHelp("FILE", "", "pairs: TSV, CSV, JSON lines or Parquet"),
            OptionHelp("--output", "FILE", "worklist, the most suspicious first (standard output)"),
            OptionHelp("--html", "FILE", "also a page on which rows are decided"),
            OptionHelp("--apply", "DECISIONS", "apply decisions to FILE; write it to --output"),
            OptionHelp("--symbols", "", "list the symbols with counts, the rarest first"),
            OptionHelp("--decided", "FILE", "leave out rows that earlier decisions keep or correct"),
            OptionHelp("--compare", "FILE", "report sources that are in this file, too"),
            OptionHelp("--next", "N", "propose N sources of --unlabeled FILE to label"),
            OptionHelp("--models", "MODELS", "pair-ngram (default; seconds), network (minutes to hours), both"),
            OptionHelp("--folds", "N", "number of folds, and of models (5 by default)"),
            OptionHelp("--size", "SIZE", "of networks: tiny, small (default), base, large"),
            OptionHelp("--time", "T", "maximum time of each network: 90s, 10m, 2h"),
            OptionHelp("--jobs", "N", "folds computed in parallel; 0: one per core"),
            OptionHelp("--run", "DIR", "folder that keeps the networks, to resume from"),
            OptionHelp("--target-symbols", "KIND", "characters (if not given), ipa, words, or a separator"),
            _COLUMNS,
            _HEADER,
            OptionHelp("--on-bad-line", "ACTION", "skip (default) and list them, or stop"),
        ),
        (
            "audit words.tsv --target-symbols words --output worklist.csv",
            "audit words.csv --header --models both --jobs 0 --html worklist.html",
            "audit words.tsv --apply decisions.csv --output corrected.tsv",
        ),
    ),
    "evaluate": HelpPage(
        "RUN [RUN ...] FILE [options]",
        "Evaluate models on pairs, with 95 % confidence intervals and significance tests.",
        (
            OptionHelp("RUN", "", "folder of a run; others are compared with it"),
            OptionHelp("FILE", "", "pairs with the columns of the training file"),
            _COLUMNS,
            OptionHelp("--target", "FILE", "targets, one per line, if FILE has sources only"),
            OptionHelp("--group", "COLUMN", "also scores for each value of this column"),
            OptionHelp("--texts", "", "also word error rate, BLEU and chrF"),
            OptionHelp("--multi-reference", "", "any target of the same source is correct"),
            OptionHelp("--worst", "N", "number of listed errors (10 by default)"),
            OptionHelp("--errors", "FILE", "also write all errors to a .csv file"),
            OptionHelp("--json", "", "print JSON instead of tables"),
            OptionHelp("--html", "FILE", "also write a report with attention weights"),
            _BEAM,
            OptionHelp("--nbest", "N", "also accuracy at 1, 2, ... N outputs"),
            _INPUT,
            _HEADER,
            _BAD_LINE,
            _DEVICE,
            OptionHelp("--on", "ray", "decode on a Ray cluster; also --blocks DIR"),
        ),
        (
            "evaluate runs/a test.tsv",
            "evaluate runs/a runs/b test.tsv --html report.html",
            "evaluate runs/{} data/{}.tsv",
        ),
    ),
    "look": HelpPage(
        "RUN [RUN ...] [FILE|-] [options]",
        "Show outputs and attention weights: in the browser, in a file, or in the terminal.",
        (
            OptionHelp("RUN", "", "folder of a run; the page compares others with it"),
            OptionHelp("FILE", "", "pairs or sources (default: the validation file)"),
            OptionHelp("--export", "FILE", ".html (all examples), .png, .svg, .json, .tex (the first)"),
            OptionHelp("--terminal", "", "show the outputs in the terminal"),
            OptionHelp("--max-examples", "N", "number of examples (page: 200, terminal: 10)"),
            OptionHelp("--target", "FILE", "targets, one per line, if FILE has sources only"),
            _COLUMNS,
            _HEADER,
            _BAD_LINE,
            _BEAM,
            OptionHelp("--port", "N", "port of the local server; 0 (default): any"),
            OptionHelp("--no-open", "", "do not open the page in the browser"),
            _DEVICE,
        ),
        (
            "look runs/a",
            "look runs/a runs/b test.tsv --export page.html",
            "look runs/a test.tsv --terminal --max-examples 3",
        ),
    ),
    "export": HelpPage(
        "RUN [RUN2] --html FILE | --onnx DIR [options]",
        "Export the network of a run, without its pair n-gram model: the encoder and one decoder step as ONNX graphs, "
        "with symbols, settings and a beam search beside them; or one HTML file that runs the network in the browser.",
        (
            OptionHelp("RUN", "", "folder of a trained run; RUN2: one to compare on the page"),
            OptionHelp("--onnx", "DIR", "folder of the graphs; requires pellucid[onnx]"),
            OptionHelp("--opset", "N", "version of the ONNX operators (17 by default)"),
            OptionHelp("--int8", "", "store the weights of the graphs as 8-bit integers"),
            OptionHelp("--check", "FILE", "pairs to evaluate the export on (validation file)"),
            OptionHelp("--max-drop", "POINTS", "with --int8, largest drop of the metric (0.2 by default)"),
            OptionHelp("--html", "FILE", "web page, which works offline"),
            OptionHelp("--weights", "TYPE", "weights of the page: float32, float16 or int8"),
            OptionHelp("--source", "TEXT", "first source on the page"),
            OptionHelp(
                "--source-column",
                "NAME",
                "column of sources in the file of --check; also --target-column, --features-column",
            ),
            OptionHelp("--header, --no-header", "", "whether the first line of that file names columns"),
            _BAD_LINE,
        ),
        (
            "export runs/a --onnx onnx",
            "export runs/a --onnx onnx-int8 --int8 --check test.tsv",
            "export runs/a --html model.html",
            "export runs/a runs/b --html models.html --weights float16",
        ),
    ),
    "share": HelpPage(
        "RUN --to DIR | --hub USER/MODEL [options]",
        "Write a folder with everything that prediction needs and a model card, without training data, log and "
        "checkpoint; or push it to the Hugging Face Hub. Every subcommand accepts the folder as a run.",
        (
            OptionHelp("RUN", "", "folder of a trained run, or of an ensemble"),
            OptionHelp("--to", "DIR", "folder to write, missing or empty"),
            OptionHelp("--hub", "USER/MODEL", "repository to push to; requires pellucid[hub]"),
            OptionHelp("--private", "", "make a new repository private"),
            OptionHelp("--message", "TEXT", "message of the commit"),
            OptionHelp("--license", "ID", "license of the model, such as apache-2.0"),
            OptionHelp("--language", "ID[,ID...]", "codes of the languages, such as en or de,gsw"),
            OptionHelp("--dataset", "ID[,ID...]", "data sets on the hub, such as user/data"),
            OptionHelp("--title", "TEXT", "title of the card, in place of the name of the folder"),
            OptionHelp("--intended-use", "FILE", "text of the section on the intended use"),
            OptionHelp("--example", "TEXT", "source whose attention the card shows; also --example-features"),
        ),
        (
            "share runs/a --to shared --license cc-by-4.0 --example hestur",
            "share runs/a --hub user/icelandic --license cc-by-4.0 --language is",
        ),
    ),
    "download": HelpPage(
        "USER/MODEL --revision REV --out DIR",
        "Download a shared model from the Hugging Face Hub to a folder, which every subcommand accepts as a run. "
        "Names, sizes and checksums are checked, and files with code are refused. Requires: pip install "
        "'pellucid[hub]'.",
        (
            OptionHelp("USER/MODEL", "", "repository of the hub"),
            OptionHelp("--revision", "REV", "commit (always the same model), tag or branch"),
            OptionHelp("--out", "DIR", "folder to write, missing or empty"),
        ),
        (
            "download user/icelandic --revision COMMIT --out icelandic",
            "predict icelandic words.txt",
        ),
    ),
    "check": HelpPage(
        "RUN [--list FILE] [--expect SHA256]",
        "Print the checksum of each file of a run folder, or compare them with an earlier list, which shows files that "
        "were changed, removed or added. No model is loaded.",
        (
            OptionHelp("RUN", "", "run folder, folder of an ensemble, or shared folder"),
            OptionHelp("--list", "FILE", "earlier output of this command"),
            OptionHelp("--expect", "SHA256", "checksum of the whole folder"),
        ),
        (
            "check runs/a > a.sha256",
            "check runs/a --list a.sha256",
        ),
    ),
    "serve": HelpPage(
        "[NAME=]RUN ... [options]",
        "Answer HTTP requests with trained models: outputs, n-best lists, scores, attention, alignments, tags and "
        "classes as JSON. The page at the printed address shows examples.",
        (
            OptionHelp("[NAME=]RUN", "", "folder of a run; the first is the default model"),
            OptionHelp("--host", "HOST", "address (127.0.0.1 by default); others require a token"),
            OptionHelp("--port", "N", "port (8000 by default); 0: any"),
            OptionHelp("--unix-socket", "PATH", "listen at a unix socket"),
            OptionHelp("--token-file", "FILE", "file with the access token, 16 characters or more"),
            OptionHelp("--allow-host", "NAME", "additional accepted Host header"),
            OptionHelp("--allow-origin", "ORIGIN", "origin whose pages may call the service"),
            OptionHelp("--log-format", "FORMAT", "text or json (text by default)"),
            OptionHelp("--workers", "N", "worker processes of each model (1 by default)"),
            OptionHelp("--max-rows", "N", "maximum number of rows per request (256 by default)"),
            OptionHelp("--max-queued-rows", "N", "maximum number of waiting rows per model (1024 by default)"),
            OptionHelp("--timeout", "X", "maximum number of seconds per request (30 by default)"),
        ),
        (
            "serve runs/a",
            "serve icelandic=runs/a french=runs/b --port 9000 --log-format json",
            "serve runs/a --unix-socket /run/pellucid/socket",
        ),
    ),
    "bench": HelpPage(
        "train|greedy|beam|all [options]",
        "Measure speed and memory on the CPU, and compare the time with a computed lower bound.",
        (
            OptionHelp("--case", "NAME ...", "tiny, small, medium, large (all by default)"),
            OptionHelp("--cell", "NAME ...", "gru, lstm (both by default)"),
            OptionHelp("--threads", "N", "CPU threads (1 by default); 0: one per core"),
            OptionHelp("--seconds", "S", "duration of a measurement (5.0 by default)"),
            OptionHelp("--repeats", "N", "number of parts of a measurement (5 by default)"),
            OptionHelp("--plain", "", "also measure plain PyTorch, without the kernels"),
            OptionHelp("--profile", "", "also print the time of each stage of training"),
            OptionHelp("--scaling", "FILE", "plot time and memory against sizes (.png, .svg)"),
            OptionHelp("--json", "", "print JSON instead of tables"),
        ),
        ("bench train --case small --cell gru --seconds 0.5", "bench all --case medium --json"),
    ),
    "data": HelpPage(
        "list|get [NAME ...] [options]",
        "List the published data sets of the recipes, or download some. License and source are printed first, and the "
        "files are checked. Requires: pip install 'pellucid[data]'.",
        (
            OptionHelp("list", "", "print all data sets, and which are downloaded"),
            OptionHelp("get", "", "download what is missing; continues an interrupted download"),
            OptionHelp("NAME", "", "name of a data set"),
            OptionHelp("--data", "DIR", "folder of the data sets"),
            OptionHelp("--registry", "FILE", "TOML file of other data sets or addresses"),
        ),
        (
            "data list",
            "data get cmudict scan",
            "data get g2p-sigmorphon2020 --data data",
        ),
    ),
    "recipe": HelpPage(
        "NAME --run DIR [options], or: pellucid recipe list [NAME]",
        "Run a reference experiment, from data to report.",
        (
            OptionHelp("NAME", "", "name of a recipe; pellucid recipe list prints all"),
            OptionHelp("--run", "DIR", "folder of data, runs and report"),
            OptionHelp("--seeds", "N", "number of random seeds (1 by default)"),
            OptionHelp("--max-train-samples", "N", "shorten the recipe to N training samples"),
            OptionHelp("--only", "NAMES", "experiments to run (pellucid recipe list NAME prints all)"),
            OptionHelp("--set", "KEY=VALUE", "another setting, such as attention.type=dot"),
            OptionHelp("--data", "DIR", "folder of published data sets (pellucid data)"),
            OptionHelp("--words", "FILE", "list of words, for the typo recipes"),
        ),
        (
            "recipe list",
            "recipe list g2p-sigmorphon2020",
            "recipe digits-attention --run runs/demo",
            "recipe g2p-sigmorphon2020 --only arm,bul --seeds 2 --run runs/g2p",
        ),
    ),
    "completion": HelpPage(
        "bash|zsh|fish",
        "Print a script that completes subcommands, flags and their choices in the shell.",
        (),
        (
            "completion bash > ~/.local/share/bash-completion/completions/pellucid",
            'completion zsh > "${fpath[1]}/_pellucid"',
            "completion fish > ~/.config/fish/completions/pellucid.fish",
        ),
    ),
}
