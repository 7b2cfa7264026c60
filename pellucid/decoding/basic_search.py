"""Basic searches, which `greedy` and `beam` compute; every other search takes single steps, by `beam_stepwise`.

A basic search ranks outputs by log-probability alone, without length ratios, constraints, forced attention and search
trees. The table names every setting and option of a search: a new one makes searches other than basic until somebody
has decided what the basic searches do with it.
"""

from pellucid.config.settings import SearchConfig
from pellucid.decoding.constraints import Constraints
from pellucid.decoding.options import DecodingOptions
from pellucid.kernels.backend import ANYTHING, Properties, SupportedValues, present_fields, settings_of

BASIC_SEARCH: SupportedValues = {
    "search.max_length": ANYTHING,
    "search.min_length": ANYTHING,
    "search.max_length_ratio": {0.0},
    "search.max_length_offset": ANYTHING,  # of the ratio
    "search.min_length_ratio": {0.0},
    "search.min_length_offset": ANYTHING,  # of the ratio
    "search.beam_size": ANYTHING,
    "search.length_normalization": {"none"},
    "search.length_penalty_alpha": ANYTHING,  # of the normalization
    "search.coverage_penalty": {0.0},
    "search.pair_ngram": ANYTHING,  # ranks the outputs after the search
    "search.batch_size": ANYTHING,
    "options.prefix": ANYTHING,  # the constraints contain it
    "options.forbidden": ANYTHING,
    "options.required": ANYTHING,
    "options.lexicon": ANYTHING,  # looked up before the search
    "options.lattice": {False},
    "options.forced_attention": {False},
    "options.masked": {False},
    "constraints.forbidden": {False},
    "constraints.required": {False},
    "constraints.prefixes": {False},
}
"""The values of each property with which a search is basic."""


def search_properties(search: SearchConfig, options: DecodingOptions, constraints: Constraints) -> Properties:
    """Return every setting of a search, and which options and constraints are present.

    Args:
        search: Search settings.
        options: Options of the predictor.
        constraints: Constraints of the sources.
    """
    present = (*present_fields("options", options), *present_fields("constraints", constraints))
    return (*settings_of("search", search), *present)


def is_basic_search(properties: Properties) -> bool:
    """Return whether `greedy` and `beam` support all properties of a search.

    Args:
        properties: Properties of the search (`search_properties`).
    """
    return all(value in BASIC_SEARCH.get(name, ()) for name, value in properties)
