"""Recipes for published data sets of string transduction.

Grapheme-to-phoneme conversion (with ablations), historical normalization, transliteration, spelling correction, SCAN.
"""

import random
import re
import unicodedata
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from pellucid.config.settings import DataConfig
from pellucid.data.examples import Example
from pellucid.data.lines import decode_utf8, read_lines, strip_newline
from pellucid.errors import DataError
from pellucid.recipes.experiments import SPLITS, DataSplits, Experiment, ExperimentSuite, read_tsv_splits
from pellucid.recipes.recipe import RecipeRequest, load_recipe_config
from pellucid.recipes.transduction_experiments import run_suite

G2P_PUBLISHED = {
    "arm": (14.67, 14.22, 12.22),
    "bul": (31.11, 34.00, 22.22),
    "fre": (6.22, 6.89, 5.11),
    "geo": (26.44, 28.00, 24.89),
    "gre": (18.89, 18.89, 14.44),
    "hin": (6.67, 9.56, 5.11),
    "hun": (5.33, 5.33, 4.00),
    "ice": (10.00, 10.22, 9.11),
}
"""WER on the test set by language: LSTM with attention, transformer, best submission."""
G2P_SYSTEMS = ("LSTM with attention", "transformer", "best submission")
UNTESTED_LANGUAGES = ("ady", "dut", "jpn", "kor", "lit", "rum", "vie")
"""Languages without a test set; the validation set alone is evaluated."""
G2P_SETTINGS: dict[str, dict[str, Any]] = {"kor": {"data": {"source_normalization": "nfd"}}}
"""Korean syllables are decomposed into letters (NFD): 3,600 words hold too few of each syllable."""
G2P_INTRODUCTION = """\
SIGMORPHON 2020, task 1: for each language 3,600 words with their pronunciation for training, 450 for validation and
450 for testing. All languages have the same settings, except that Korean syllables are decomposed into letters. Every
search keeps five hypotheses. The published word error rate (WER) is the sequence error rate: the share of words with a
wrong phone. The published phone error rate (PER) is the symbol error rate: edits over phones.

Published: test WER of Gorman et al. (2020, Table 2), "The SIGMORPHON 2020 Shared Task on Multilingual
Grapheme-to-Phoneme Conversion". Their LSTM with attention is bidirectional, has one layer per side, label smoothing
and beam size five, and was tuned for each language on its validation set over 36 points. The best submission is
another system for each language, and often an ensemble. One word of 450 is 0.22 points."""


def run_g2p(request: RecipeRequest) -> Iterator[str]:
    """Train and score one model per language of SIGMORPHON 2020 and seed.

    Args:
        request: The recipe's request.

    Returns:
        An iterator over the lines to print; the trainings run while it is read (`run_suite`).
    """
    return run_suite(g2p_suite(), request)


def g2p_suite() -> ExperimentSuite:
    """Return the suite of the recipe g2p-sigmorphon2020: one experiment per language, those with a test set first.

    Raises:
        ConfigError: The settings file of the recipe is missing or invalid.
    """
    data = load_recipe_config("g2p-sigmorphon2020", {}).data
    languages = sorted(
        [*G2P_PUBLISHED, *UNTESTED_LANGUAGES], key=lambda language: (language in UNTESTED_LANGUAGES, language)
    )
    return ExperimentSuite(
        name="g2p-sigmorphon2020",
        title="Grapheme-to-phoneme conversion",
        introduction=G2P_INTRODUCTION,
        origin="task 1 of SIGMORPHON 2020 (github.com/sigmorphon/2020, task1/data)",
        metric="sequence_error_rate",
        experiments=[
            Experiment(
                language,
                partial(read_g2p_language, language, data),
                _g2p_published(language),
                G2P_SETTINGS.get(language, {}),
            )
            for language in languages
        ],
    )


def read_g2p_language(language: str, config: DataConfig, folder: Path) -> DataSplits:
    """Read the training, validation and test pairs of a language.

    Args:
        language: Language code, which begins the file names.
        config: Tokenization of the pairs.
        folder: Data folder of the suite.

    Returns:
        The splits; the test set is empty for `UNTESTED_LANGUAGES`.

    Raises:
        DataError: A file is missing, has no pair or a bad line.
    """
    splits = SPLITS if language in G2P_PUBLISHED else SPLITS[:2]
    return read_tsv_splits([folder / split / f"{language}_{split}.tsv" for split in splits], config)


def _g2p_published(language: str) -> dict[str, float]:
    """Return the published scores of a language, by system."""
    return dict(zip(G2P_SYSTEMS, G2P_PUBLISHED[language], strict=True)) if language in G2P_PUBLISHED else {}


ABLATION_LANGUAGES = ("arm", "bul", "gre")
"""Three tested languages in which the defaults err often enough to show a difference."""
DEFAULT_SETTING = "default"
ABLATION_SETTINGS: Mapping[str, Mapping[str, Mapping[str, Any]]] = {
    DEFAULT_SETTING: {},
    "no-dropout": {"encoder": {"dropout": 0.0}, "decoder": {"dropout": 0.0}},
    "variational": {"encoder": {"dropout_mask": "sequence"}, "decoder": {"dropout_mask": "sequence"}},
    "embedding-dropout": {"encoder": {"embedding_dropout": 0.1}, "decoder": {"embedding_dropout": 0.1}},
    "recurrent-dropout": {"encoder": {"recurrent_dropout": 0.2}, "decoder": {"recurrent_dropout": 0.2}},
    "layer-normalization": {
        "encoder": {"layer_normalization": "outputs"},
        "decoder": {"layer_normalization": "outputs"},
    },
    "two-layers": {"encoder": {"num_layers": 2}, "decoder": {"num_layers": 2}},
    "residual": {"encoder": {"num_layers": 2, "residual": True}, "decoder": {"num_layers": 2, "residual": True}},
    "tied": {"decoder": {"tie_embeddings": True}},
    "lstm": {"encoder": {"cell": "lstm"}, "decoder": {"cell": "lstm"}},
    "step-then-attend": {"decoder": {"order": "step-then-attend"}},
    "input-feeding": {"decoder": {"order": "step-then-attend", "input_feeding": True}},
    "four-heads": {"attention": {"num_heads": 4}},
    "general-score": {"attention": {"type": "general"}},
    "no-smoothing": {"training": {"label_smoothing": 0.0}},
    "scheduled-sampling": {"training": {"scheduled_sampling": "linear"}},
    "mean-weights": {"training": {"weight_averaging": "ema", "ema_decay": 0.99}},
    "consistency": {"training": {"rdrop_alpha": 1.0}},
}
"""Changes to the defaults. Learning rate and length of training are not tuned again for each setting."""
ABLATION_BASELINES = {"residual": "two-layers", "input-feeding": "step-then-attend"}
"""Baselines other than the default."""
ABLATION_INTRODUCTION = """\
Grapheme-to-phoneme conversion for three languages of SIGMORPHON 2020, as in the recipe g2p-sigmorphon2020, with one
option changed in each row: the same words, batches, learning rate, length of training and seed. A row shows the
effect of the option alone, without tuning of other settings for it.

Residual connections also have two layers, so their baseline is two-layers; the baseline of input feeding is
step-then-attend."""


def run_g2p_ablations(request: RecipeRequest) -> Iterator[str]:
    """Train and score every setting of the ablation study on three languages, and compare it with its baseline.

    Args:
        request: The recipe's request.

    Returns:
        An iterator over the lines to print; the trainings run while it is read (`run_suite`).
    """
    return run_suite(g2p_ablation_suite(), request)


def g2p_ablation_suite() -> ExperimentSuite:
    """Return the suite of the recipe g2p-ablations: one experiment per setting and language.

    Raises:
        ConfigError: The settings file of the recipe is missing or invalid.
    """
    data = load_recipe_config("g2p-ablations", {}).data
    return ExperimentSuite(
        name="g2p-ablations",
        title="Ablation study",
        introduction=ABLATION_INTRODUCTION,
        origin="task 1 of SIGMORPHON 2020 (github.com/sigmorphon/2020, task1/data)",
        metric="sequence_error_rate",
        experiments=[
            Experiment(
                name=f"{setting}-{language}",
                read_splits=partial(read_g2p_language, language, data),
                settings=settings,
                settings_name=setting,
                baseline=""
                if setting == DEFAULT_SETTING
                else f"{ABLATION_BASELINES.get(setting, DEFAULT_SETTING)}-{language}",
            )
            for setting, settings in ABLATION_SETTINGS.items()
            for language in ABLATION_LANGUAGES
        ],
        folder="g2p-sigmorphon2020",
    )


HISTNORM_FILES = {"ridges": "german-ridges", "bohoric": "slovene-goo300k-bohoric"}
HISTNORM_SIZES = {"1k": 1_000, "5k": 5_000, "10k": 10_000, "25k": 25_000, "all": 0}
"""Number of training tokens by name; 0 takes all."""
HISTNORM_SYSTEMS = ("Marian", "XNMT", "cSMTiser")
HISTNORM_PUBLISHED = {
    "ridges": {
        "1k": (65.27, 60.61, 75.04),
        "5k": (75.78, 74.27, 80.25),
        "10k": (79.28, 78.77, 82.67),
        "25k": (84.24, 83.75, 85.86),
    },
    "bohoric": {
        "1k": (78.14, 73.83, 82.90),
        "5k": (84.32, 83.78, 88.09),
        "10k": (87.03, 86.41, 89.59),
        "25k": (89.77, 89.45, 91.05),
    },
}
"""Word accuracy by size, in the order of `HISTNORM_SYSTEMS`."""
HISTNORM_SETTINGS: dict[str, dict[str, Any]] = {
    "1k": {"training": {"eval_interval": 4.0}},
    "5k": {"training": {"eval_interval": 2.0}},
}
"""Validation only every few epochs: epochs over small training sets are short and the validation set is large."""
HISTNORM_INTRODUCTION = """\
Tokens of German herbals (RIDGES, 1482 to 1652) and of Slovene books in the Bohorič alphabet (goo300k), each with its
modern spelling. Training sets are the first 1,000, 5,000, 10,000 and 25,000 tokens of the training file, and all of
them. Validation and test sets are always complete, and repeated tokens count each time.

Tokens are preprocessed as for the published numbers: without sentence boundaries, empty sides and punctuation, in
lower case and Unicode form NFC, and with 0 for each digit of a number that is the same on both sides.

Published: word accuracy by size, from appendix_tab6.pdf of Bollmann (2019), "A Large-Scale Comparison of Historical
Text Normalization Systems". Marian is a deep GRU, XNMT a bidirectional LSTM, both with attention; cSMTiser translates
phrases of characters. The appendix states neither the selection of tokens nor whether the validation or the test set
was scored: a difference of one point is not meaningful."""


def run_histnorm(request: RecipeRequest) -> Iterator[str]:
    """Train and score historical normalization of German and Slovene at every training size.

    Args:
        request: The recipe's request.

    Returns:
        An iterator over the lines to print; the trainings run while it is read (`run_suite`).
    """
    return run_suite(histnorm_suite(), request)


def histnorm_suite() -> ExperimentSuite:
    """Return the suite of the recipe histnorm: one experiment per corpus and training size."""
    return ExperimentSuite(
        name="histnorm",
        title="Historical spelling normalization",
        introduction=HISTNORM_INTRODUCTION,
        origin="the data set of Bollmann 2019 (github.com/coastalcph/histnorm, the files german-ridges.* and "
        "slovene-goo300k-bohoric.* of datasets)",
        metric="exact_match",
        experiments=[_histnorm_experiment(corpus, size) for corpus in HISTNORM_FILES for size in HISTNORM_SIZES],
    )


def normalize_pair(source: str, target: str) -> Example | None:
    """Return a pair preprocessed as for the published systems, or None if they skip it (an empty side, or punctuation).

    These systems use `scripts/preprocess.py --all`. Spaces are kept, where that script replaces them by a placeholder.

    Args:
        source: Historical spelling of a token.
        target: Modern spelling of the token.
    """
    if not source or not target or _is_punctuation(source) or _is_punctuation(target):
        return None
    source, target = (unicodedata.normalize("NFC", text).lower() for text in (source, target))
    if source == target:
        source = target = re.sub("[0-9]", "0", source)
    return Example(source, target)


def _histnorm_experiment(corpus: str, size: str) -> Experiment:
    """Return the experiment of a language at a size."""
    published = dict(zip(HISTNORM_SYSTEMS, HISTNORM_PUBLISHED[corpus].get(size, ()), strict=False))
    return Experiment(
        f"{corpus}-{size}", partial(_read_histnorm, corpus, size), published, HISTNORM_SETTINGS.get(size, {})
    )


def _read_histnorm(corpus: str, size: str, folder: Path) -> DataSplits:
    """Read the files of a language and truncate the training set."""
    train, dev, test = (
        _read_histnorm_file(folder / f"{HISTNORM_FILES[corpus]}.{part}.txt") for part in ("train", "dev", "test")
    )
    return DataSplits(train[: HISTNORM_SIZES[size] or len(train)], dev, test)


def _read_histnorm_file(path: Path) -> list[Example]:
    """Read the tokens of a file; skip lines without two columns (sentence boundaries, stray tabs)."""
    rows = [strip_newline(decode_utf8(line)).rstrip().split("\t") for line in read_lines(path)]
    pairs = [normalize_pair(*row) for row in rows if len(row) == 2]
    return [pair for pair in pairs if pair is not None]


def _is_punctuation(text: str) -> bool:
    """Return True if every character is punctuation (Unicode categories P)."""
    return all(unicodedata.category(character).startswith("P") for character in text)


TRANSLIT_LANGUAGES = {"he": "hebrew", "ar": "arabic"}
TRANSLIT_PARTS = ("64", "16", "20")
"""Percentages of names for training, validation and test, which end the file names."""
TRANSLIT_INTRODUCTION = """\
Words of the names of people in Wikidata, in lower case, and the same in Hebrew or Arabic script, in the splits of
Merhav and Ash (2018), "Design Challenges in Named Entity Transliteration". Every word occurs once, with one
reference. An output is correct at k-best if one of the first k equals the reference.

Published: the paper compares Phonetisaurus, an encoder-decoder with attention and a transformer at 1-, 2- and
3-best, but its table could not be read for this recipe, so there is no published number here. For comparison: its
repository shows 60, 71 and 75 % for Russian, without naming the system."""


def run_translit(request: RecipeRequest) -> Iterator[str]:
    """Train and score transliteration of names to Hebrew and to Arabic script.

    Args:
        request: The recipe's request.

    Returns:
        An iterator over the lines to print; the trainings run while it is read (`run_suite`).
    """
    return run_suite(translit_suite(), request)


def translit_suite() -> ExperimentSuite:
    """Return the suite of the recipe translit-wikidata: one experiment per language.

    Raises:
        ConfigError: The settings file of the recipe is missing or invalid.
    """
    data = load_recipe_config("translit-wikidata", {}).data
    return ExperimentSuite(
        name="translit-wikidata",
        title="Transliteration of names",
        introduction=TRANSLIT_INTRODUCTION,
        origin="the data set of Merhav and Ash 2018 (github.com/steveash/NETransliteration-COLING2018, data)",
        metric="exact_match",
        experiments=[
            Experiment(code, partial(_read_translit, name, data)) for code, name in TRANSLIT_LANGUAGES.items()
        ],
        num_candidates=3,
    )


def _read_translit(name: str, config: DataConfig, folder: Path) -> DataSplits:
    """Read the files of a language; the third column, a frequency, is ignored."""
    return read_tsv_splits([folder / f"wd_{name}_{part}" for part in TRANSLIT_PARTS], config)


SPELLING_INTRODUCTION = """\
Misspellings of the dictionary of codespell 2.4.3 with a single correction. No correction occurs in two splits: the
words of the test set are unseen in training. The report has accuracy at 1-, 2-
and 3-best.

Published: no number of such a model on fixed splits is known. Dictionary-based correctors solve another task, in
which the right word is always in the dictionary.

The second experiment adds a pointer-generator: at each step a gate mixes the decoder's distribution with a copy of
the attended source letters (See et al. 2017). Nine of ten letters are copies, so the attention of such a model is an
alignment of the two spellings; it is drawn below."""


def run_spelling(request: RecipeRequest) -> Iterator[str]:
    """Train and score spelling correction without and with a pointer-generator.

    Args:
        request: The recipe's request.

    Returns:
        An iterator over the lines to print; the trainings run while it is read (`run_suite`).
    """
    return run_suite(spelling_suite(), request)


def spelling_suite() -> ExperimentSuite:
    """Return the suite of the recipe spelling-codespell: its experiments without and with copying.

    Raises:
        ConfigError: The settings file of the recipe is missing or invalid.
    """
    data = load_recipe_config("spelling-codespell", {}).data
    return ExperimentSuite(
        name="spelling-codespell",
        title="Spelling correction",
        introduction=SPELLING_INTRODUCTION,
        origin="codespell's dictionary (github.com/codespell-project/codespell) as train.tsv, dev.tsv and test.tsv, "
        "split by the correction",
        metric="exact_match",
        experiments=[
            Experiment("codespell", partial(_read_spelling, data), settings_name="codespell"),
            Experiment(
                "copying",
                partial(_read_spelling, data),
                {},
                {"decoder": {"pointer_generator": True}},
                settings_name="copying",
                baseline="codespell",
            ),
        ],
        num_candidates=3,
        show_all_attention=True,
    )


def _read_spelling(config: DataConfig, folder: Path) -> DataSplits:
    """Read the three files."""
    return read_tsv_splits([folder / f"{split}.tsv" for split in SPLITS], config)


SCAN_SPLITS = ("simple", "length")
SCAN_DEV_PAIRS = 500
"""Training pairs held out as the validation set."""
SCAN_INTRODUCTION = """\
Commands of a small grammar ("jump left twice") and the actions that they describe, word by word. The split "simple"
is random; the test set of "length" has all commands with more than 22 actions. There is no official validation set:
500 pairs of the training file, drawn with a fixed seed, are held out for it. So the validation set of "length" has
the lengths of its training set and does not measure extrapolation.

Published: recurrent networks have exact matches of at least 99.7 % on "simple", and of about 14 to 21 % on "length"
(Lake and Baroni 2018, "Generalization without Systematicity"; Bastings et al. 2018, "Jump to better conclusions")."""


def run_scan(request: RecipeRequest) -> Iterator[str]:
    """Train and score the SCAN splits simple and length.

    Args:
        request: The recipe's request.

    Returns:
        An iterator over the lines to print; the trainings run while it is read (`run_suite`).
    """
    return run_suite(scan_suite(), request)


def scan_suite() -> ExperimentSuite:
    """Return the suite of the recipe scan: one experiment per split."""
    return ExperimentSuite(
        name="scan",
        title="SCAN: commands to actions",
        introduction=SCAN_INTRODUCTION,
        origin="SCAN (github.com/brendenlake/SCAN, the files of simple_split and length_split, each also as .gz)",
        metric="exact_match",
        experiments=[Experiment(split, partial(_read_scan, split)) for split in SCAN_SPLITS],
    )


def _read_scan(split: str, folder: Path) -> DataSplits:
    """Read the files of a split; hold out validation pairs from the training file."""
    pairs, test = (_read_scan_file(folder / f"tasks_{part}_{split}.txt") for part in ("train", "test"))
    dev_indices = set(random.Random(1).sample(range(len(pairs)), min(SCAN_DEV_PAIRS, len(pairs) // 4)))
    train = [pair for index, pair in enumerate(pairs) if index not in dev_indices]
    return DataSplits(train, [pairs[index] for index in sorted(dev_indices)], test)


def _read_scan_file(path: Path) -> list[Example]:
    """Read pairs from a file, plain or with gzip: one "IN: run left OUT: I_TURN_LEFT I_RUN" per line."""
    compressed = path.with_name(f"{path.name}.gz")
    source_path = compressed if compressed.exists() else path
    pairs = []
    for number, line in enumerate(read_lines(source_path), start=1):
        source, separator, target = strip_newline(decode_utf8(line)).removeprefix("IN: ").partition(" OUT: ")
        if not separator:
            raise DataError(f"{source_path}, line {number}: expected 'IN: command OUT: actions'")
        pairs.append(Example(source, target))
    return pairs
