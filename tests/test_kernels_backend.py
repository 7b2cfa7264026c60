"""Selection of the backend: no option is ignored, and results equal the reference."""

from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import fields, replace
from functools import cache
from itertools import combinations, product
from typing import Any, Literal, get_args, get_origin

import msgspec
import numpy as np
import pytest
import torch
from covering_arrays import Row, covering_array, list_pairs
from small_networks import make_config, make_network, make_padded_ids, make_vocabularies

from pellucid.config.attention_types import BUILT_IN_TYPES
from pellucid.config.cell_types import BUILT_IN_CELLS
from pellucid.config.settings import AttentionConfig, Config, DecoderConfig, EncoderConfig, SearchConfig, memory_size
from pellucid.config.validation import check_consistency
from pellucid.data.batches import Batch
from pellucid.data.examples import Example
from pellucid.decoding import base_transducer
from pellucid.decoding.constraints import Constraints
from pellucid.decoding.lexicon import Lexicon
from pellucid.decoding.options import NO_OPTIONS, DecodingOptions, ForcedAttention, search_properties
from pellucid.decoding.trace import Trace
from pellucid.decoding.transducer import Transducer
from pellucid.errors import ConfigError
from pellucid.kernels import dispatch
from pellucid.kernels.backend import ANYTHING, ComputationRequest, SupportedValues, present_fields, settings_of
from pellucid.kernels.dispatch import NUMBA, SEARCH, TORCH, choose_backend, disable_kernels, fits_search_kernel
from pellucid.kernels.kernel_loader import load_kernels
from pellucid.model.attention import AdditiveAttention
from pellucid.model.cells import RecurrentCell
from pellucid.model.memory import Memory
from pellucid.model.network import EncoderDecoder
from pellucid.model.requests import kind_of

TOLERANCE = 1e-4
"""Tolerance of float32 kernels, relative to the largest entry, or to 0.1 where larger summands cancel."""
NORMALIZED_TOLERANCE = 2e-3
"""Tolerance with layer normalization, which divides by the deviation of units and so enlarges rounding errors."""

# Values of the settings that are neither literals nor booleans. A new such setting needs its values here.
SETTING_VALUES: dict[str, tuple[Hashable, ...]] = {
    "cell": BUILT_IN_CELLS,
    "num_layers": (1, 2, 3),
    "dropout": (0.0, 0.5),
    "embedding_dropout": (0.0, 0.5),
    "recurrent_dropout": (0.0, 0.5),
    "embedding_size": (3,),
    "convolutions": ((), (1, 3)),
    "size": (4,),
    "filters": (2,),
    "filter_radius": (1,),
    "num_heads": (1, 2),
    "attention.type": tuple(BUILT_IN_TYPES),
}
EXCLUDED_SETTINGS = {
    *("encoder.hidden_size", "decoder.hidden_size"),  # set together below
    *("encoder.pretrained", "decoder.pretrained"),  # files of vectors, read before the network computes
    *("encoder.feature_merge", "decoder.num_hops"),  # need data with features, or another task
    *("encoder.characters", "encoder.character_size", "encoder.word_dropout"),  # need sources that are cut into words
    "encoder.context_dropout",  # needs words of running text
}
SEARCH_VALUES: dict[str, tuple[Hashable, ...]] = {
    "search.max_length": (4, 6),
    "search.min_length": (0, 2),
    "search.max_length_ratio": (0.0, 0.75),
    "search.max_length_offset": (0, 1),
    "search.min_length_ratio": (0.0, 0.5),
    "search.min_length_offset": (0, 1),
    "search.beam_size": (1, 3),
    "search.length_penalty_alpha": (0.6, 1.0),
    "search.coverage_penalty": (0.0, 0.3),
    "search.batch_size": (2, 128),
}
EXAMPLES = [Example(source, "") for source in ("abca", "bbed", "eacd")]
OPTION_VALUES: dict[str, tuple[Hashable, ...]] = {
    "options.prefix": ("", "x"),
    "options.forbidden": ((), ("w",)),
    "options.required": ((), ("v",)),
    "options.lexicon": (False, True),
    "options.search_tree": (False, True),
    "options.forced_attention": ((), (ForcedAttention(1, (0.0, 1.0, 2.0, 0.0)),)),
    "options.masked_positions": ((), (2,)),
}


def collect_values(
    section: str, struct: type[msgspec.Struct], known_values: Mapping[str, tuple[Hashable, ...]]
) -> dict[str, Any]:
    """Return every setting of a section with its tested values."""
    values_by_setting: dict[str, Any] = {}
    for field in msgspec.structs.fields(struct):
        name = f"{section}.{field.name}"
        if get_origin(field.type) is Literal:
            values_by_setting[name] = get_args(field.type)
        elif field.type is bool:
            values_by_setting[name] = (False, True)
        elif name not in EXCLUDED_SETTINGS:
            values_by_setting[name] = known_values[name] if name in known_values else known_values[field.name]
    return {name: values for name, values in values_by_setting.items() if name not in EXCLUDED_SETTINGS}


@cache
def factors() -> dict[str, Sequence[Hashable]]:
    """Return every setting of an encoder-decoder with its tested values."""
    sections: dict[str, Any] = {"encoder": EncoderConfig, "decoder": DecoderConfig, "attention": AttentionConfig}
    return {name: values for each in sections.items() for name, values in collect_values(*each, SETTING_VALUES).items()}


@cache
def build_base_config() -> Config:
    """Return the tiny configuration."""
    return make_config({})


def build_row_config(row: Row) -> Config:
    """Return the configuration of a row; the decoder has as many units as the memory, so that dot scores are valid."""
    settings: dict[str, dict[str, Any]] = {"encoder": {"hidden_size": 3}, "decoder": {}, "attention": {"size": 4}}
    for name, value in row.items():
        section, _, key = name.partition(".")
        if section in settings:
            settings[section][key] = value
    base = build_base_config()
    settings["decoder"].setdefault("order", "step-then-attend")  # the order that supports input feeding
    encoder = msgspec.structs.replace(base.encoder, **settings["encoder"])
    decoder = msgspec.structs.replace(base.decoder, **settings["decoder"], hidden_size=memory_size(encoder))
    attention = msgspec.structs.replace(base.attention, **settings["attention"])
    config = msgspec.structs.replace(base, encoder=encoder, decoder=decoder, attention=attention)
    check_consistency(config)
    return config


def is_valid(row: Row) -> bool:
    """Return whether a row, or a part of one, is a valid configuration."""
    try:
        build_row_config(row)
    except ConfigError:
        return False
    return not (row.get("options.masked_positions") and row.get("attention.type") == "none")


@cache
def network_rows() -> list[Row]:
    """Return rows that contain every valid pair of settings, then every pair of settings that the kernels support.

    The last rows have exactly one unsupported setting each, because several would hide each other.
    """
    supported_rows = covering_array(select_supported_values(factors(), NUMBA.supported_values["unroll"]), is_valid)
    return [*covering_array(factors(), is_valid), *supported_rows, *change_one_value(supported_rows, factors())]


def change_one_value(rows: Sequence[Row], values_by_setting: Mapping[str, Sequence[Hashable]]) -> list[Row]:
    """Return, for each value that no row contains, some of the rows with that value."""
    contained = {item for row in rows for item in row.items()}
    absent = [
        (name, value)
        for name, values in values_by_setting.items()
        for value in values
        if (name, value) not in contained
    ]
    changed = [list(filter(is_valid, ({**row, name: value} for row in rows))) for name, value in absent]
    return [row for each in changed for row in each[:: max(1, len(each) // 2)][:2]]


def select_supported_values(
    values_by_setting: Mapping[str, Sequence[Hashable]], *tables: SupportedValues
) -> dict[str, Sequence[Hashable]]:
    """Return the values that all tables list; for an option, whether it may be present."""
    supported_values = dict(values_by_setting)
    for table in tables:
        for name, values in supported_values.items():
            accepted = table.get(name, ANYTHING)
            properties = [bool(value) if name.startswith("options.") else value for value in values]
            supported_values[name] = [
                value for value, property_value in zip(values, properties, strict=True) if property_value in accepted
            ]
    return supported_values


@cache
def search_rows() -> list[Row]:
    """Return rows that contain every valid pair of settings and options of a search and of its network.

    Further rows contain every pair for which kernels compute the steps, and every pair for which a kernel computes the
    whole search. The last rows have exactly one unsupported option each, because several would hide each other.
    """
    network: dict[str, Sequence[Hashable]] = {
        name: factors()[name]
        for name in (
            "attention.type",
            "attention.num_heads",
            "decoder.cell",
            "decoder.pointer_generator",
            "decoder.order",
        )
    }
    layers = {
        name: factors()[name]
        for name in (
            "decoder.num_layers",
            "decoder.residual",
            "decoder.layer_normalization",
            "decoder.output_layer_inputs",
        )
    }
    search: dict[str, Any] = collect_values("search", SearchConfig, SEARCH_VALUES)
    all_values = {**network, **layers, **search, **OPTION_VALUES}
    without_options: dict[str, Any] = {
        **all_values,
        "options.prefix": ("",),
        "options.forbidden": ((),),
        "options.required": ((),),
    }
    step_values, whole_search_values = (
        select_supported_values(all_values, NUMBA.supported_values["step"]),
        select_supported_values(without_options, NUMBA.supported_values["greedy"]),
    )
    first, second, third = (covering_array(array, is_valid) for array in (all_values, step_values, whole_search_values))
    return [*first, *second, *third, *change_one_value(third, all_values)]


@contextmanager
def record_backends() -> Iterator[dict[str, str]]:
    """Record, within the block, the backend that was selected last for each computation."""
    backends: dict[str, str] = {}
    choose_original = dispatch.choose_backend
    with pytest.MonkeyPatch.context() as patch:

        def choose_and_record(request: ComputationRequest) -> Any:  # noqa: ANN401
            backend = choose_original(request)
            backends[request.computation] = backend.name
            return backend

        patch.setattr(dispatch, "choose_backend", choose_and_record)
        yield backends


@contextmanager
def run_searches_stepwise() -> Iterator[None]:
    """Run all searches within the block step by step in PyTorch, by the code that supports every option."""
    with disable_kernels(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(base_transducer, "fits_search_kernel", lambda properties: False)
        yield


def build_network_pair(config: Config, seed: int) -> tuple[EncoderDecoder, EncoderDecoder]:
    """Return one network in float32 and in float64."""
    single = make_network(config, seed, torch.float32)
    return single, deepcopy(single).double()


def compute_update(network: EncoderDecoder, batch: Batch, seed: int) -> dict[str, torch.Tensor]:
    """Return the results of an update in float64: probabilities, weights, final state, and all gradients."""
    torch.manual_seed(seed)
    unrolled = network(batch)
    outputs = [unrolled.logits.softmax(dim=-1), unrolled.weights, unrolled.state.hidden]
    generator, outputs = np.random.default_rng(seed), [each for each in outputs if each.requires_grad]
    output_gradients = [torch.from_numpy(generator.standard_normal(tuple(each.shape))).to(each) for each in outputs]
    parameters = {name: each for name, each in network.named_parameters() if each.requires_grad}
    gradients = torch.autograd.grad(outputs, list(parameters.values()), output_gradients, allow_unused=True)
    results = {f"output {index}": each.detach() for index, each in enumerate(outputs)}
    gradients_by_name = {name: each for name, each in zip(parameters, gradients, strict=True) if each is not None}
    return {name: each.double() for name, each in (results | gradients_by_name).items()}


def select_tolerance(config: Config) -> float:
    normalized = {config.encoder.layer_normalization, config.decoder.layer_normalization} != {"none"}
    return NORMALIZED_TOLERANCE if normalized else TOLERANCE


def assert_near(actual: Mapping[str, torch.Tensor], expected: Mapping[str, torch.Tensor], tolerance: float) -> None:
    assert actual.keys() == expected.keys()
    for name, exact in expected.items():
        if exact.numel():
            scale = max(float(exact.abs().max()), 0.1)
            torch.testing.assert_close(actual[name] / scale, exact / scale, rtol=0, atol=tolerance, msg=name)


@pytest.mark.slow
def test_rows_contain_every_valid_pair_of_values() -> None:
    """A pair of values is missing from all rows only if it is invalid."""
    values, contained = factors(), {pair for row in network_rows() for pair in list_pairs(row)}
    for one, other in combinations(values, 2):
        for pair in product(values[one], values[other]):
            row = {one: pair[0], other: pair[1]}
            if tuple(row.items()) not in contained:
                assert not is_valid(row), row
    assert len(network_rows()) < 120 and len(search_rows()) < 120  # few, to limit the time of the test


def test_an_update_equals_the_reference_in_double_precision() -> None:
    """For every pair of settings, a kernel computes the results of PyTorch or declines the request."""
    used = set[tuple[str, str]]()
    lengths = torch.tensor([5, 2, 4])
    batch = Batch(make_padded_ids([5, 2, 4], 1), lengths, make_padded_ids([3, 4, 1], 2), torch.tensor([3, 4, 1]))
    for seed, row in enumerate(network_rows()):
        config = build_row_config(row)
        single, double = build_network_pair(config, seed)
        if config.attention.type != "monotonic":  # monotonic attention draws other random numbers in float64
            single.train(), double.train()
        with record_backends() as backends:
            actual = compute_update(single, batch, seed)
        used |= set(backends.items())
        try:
            assert_near(actual, compute_update(double, batch, seed), select_tolerance(config))
        except AssertionError as error:
            raise AssertionError(f"{row} by {backends}") from error
    assert used >= set(product(("recurrence", "unroll"), ("Numba", "Torch")))


def decode_examples(row: Row, network: EncoderDecoder) -> list[list[Trace]]:
    """Return the best outputs of the examples in a search with the settings of a row."""
    search = {name.partition(".")[2]: value for name, value in row.items() if name.startswith("search.")}
    options = {name.partition(".")[2]: value for name, value in row.items() if name.startswith("options.")}
    options["lexicon"] = Lexicon({"bbed": ("xyz",)}) if options["lexicon"] else None
    config = build_row_config(row)
    config = msgspec.structs.replace(config, search=msgspec.structs.replace(config.search, **search))
    model = Transducer(config, make_vocabularies(), network, DecodingOptions(**options))  # type: ignore[arg-type]
    return model.nbest_examples(EXAMPLES, 1 if config.search.beam_size == 1 else 2)  # a list of two needs a beam


@pytest.mark.slow
def test_a_search_equals_the_reference_in_double_precision() -> None:
    """For every pair of settings and options, no kernel ignores one."""
    assert load_kernels()
    used = set[tuple[str, str]]()
    for seed, row in enumerate(search_rows()):
        single, double = build_network_pair(build_row_config(row), seed)
        with record_backends() as backends:
            actual = decode_examples(row, single)
        used |= set(backends.items())
        with run_searches_stepwise():
            expected = decode_examples(row, double)
        try:
            for actual_trace, expected_trace in [
                pair for pairs in zip(actual, expected, strict=True) for pair in zip(*pairs, strict=True)
            ]:
                assert (actual_trace.search_score is None) == (expected_trace.search_score is None)
                assert (actual_trace.search_tree is None) == (expected_trace.search_tree is None)
                assert actual_trace.score == pytest.approx(expected_trace.score, rel=TOLERANCE, abs=10 * TOLERANCE)
                if actual_trace.output != expected_trace.output:  # a tie, such as equal symbols in another order
                    continue
                for one, other in (
                    (actual_trace.log_probabilities, expected_trace.log_probabilities),
                    (actual_trace.attention, expected_trace.attention),
                    (actual_trace.top_log_probabilities, expected_trace.top_log_probabilities),
                ):
                    np.testing.assert_allclose(one, other, rtol=TOLERANCE, atol=10 * TOLERANCE)
        except AssertionError as error:
            raise AssertionError(f"{row} by {backends}") from error
    assert used >= set(product(("step", "ranking"), ("Numba", "Torch")))
    assert used >= {("greedy", "Numba"), ("beam", "Numba")}


def build_unroll_request(network: EncoderDecoder) -> ComputationRequest:
    """Return the request to a backend that unrolls a network's decoder."""
    memory = network.encoder(make_padded_ids([2], 1), torch.tensor([2]))
    return network.decoder.request("unroll", network.decoder.build_cache(memory))


def test_a_backend_declines_unlisted_properties() -> None:
    request = build_unroll_request(make_network(make_config({}), 1, torch.float32))
    assert choose_backend(request) is NUMBA and NUMBA.unsupported_properties(request) == ()
    for backend, extra_property in product((NUMBA, TORCH), [("decoder.new_setting", 0), ("memory.new_part", False)]):
        extended = replace(request, properties=(*request.properties, extra_property))
        assert backend.supports(extended) == (backend is TORCH)
    assert NUMBA.unsupported_properties(replace(request, properties=(("decoder.new_setting", 0),))) == (
        ("decoder.new_setting", 0),
    )
    assert choose_backend(replace(request, dtype="float64")) is TORCH
    with disable_kernels():
        assert choose_backend(request) is TORCH


def test_every_setting_and_every_optional_part_is_a_property() -> None:
    names = {name for name, _ in build_unroll_request(make_network(make_config({}), 1)).properties}
    for section, struct in (("decoder", DecoderConfig), ("attention", AttentionConfig)):
        assert names >= {f"{section}.{field.name}" for field in msgspec.structs.fields(struct)}
    assert names >= {f"memory.{name}" for name in Memory._field_defaults}
    search = {name for name, _ in search_properties(SearchConfig(), NO_OPTIONS, Constraints())}
    assert search >= {f"search.{field.name}" for field in msgspec.structs.fields(SearchConfig)}
    assert search >= {f"options.{field.name}" for field in fields(DecodingOptions)}
    assert search == set(SEARCH)


def test_a_search_with_an_unlisted_property_fits_no_kernel() -> None:
    properties = search_properties(SearchConfig(), NO_OPTIONS, Constraints())
    assert fits_search_kernel(properties)
    assert not fits_search_kernel((*properties, ("search.new_setting", 0)))
    assert not fits_search_kernel(search_properties(SearchConfig(coverage_penalty=0.1), NO_OPTIONS, Constraints()))
    assert not fits_search_kernel(search_properties(SearchConfig(), DecodingOptions(search_tree=True), Constraints()))
    assert not fits_search_kernel(search_properties(SearchConfig(), NO_OPTIONS, Constraints(), is_ensemble=True))


def test_a_part_is_present_unless_it_is_empty_or_the_default() -> None:
    assert dict(present_fields("options", DecodingOptions(prefix="a", masked_positions=(1,)))) == {
        **{f"options.{field.name}": False for field in fields(DecodingOptions)},
        "options.prefix": True,
        "options.masked_positions": True,
    }
    assert not any(is_present for _, is_present in present_fields("constraints", Constraints()))
    assert dict(present_fields("constraints", Constraints(required=np.ones(1, np.int64))))["constraints.required"]
    assert ("search.beam_size", 5) in settings_of("search", make_config({}).search)


def test_a_subclass_does_not_inherit_its_kind() -> None:
    class DoubledAttention(AdditiveAttention):
        def scores(self, query: torch.Tensor, keys: torch.Tensor) -> torch.Tensor:
            return 2 * super().scores(query, keys)

    class OtherCell(RecurrentCell):
        pass

    network = make_network(make_config({}), 1, torch.float32)
    attention = network.decoder.attention
    assert isinstance(attention, AdditiveAttention) and kind_of(attention) == "additive"
    assert kind_of(OtherCell("gru", 1, 1)) != "recurrent" == kind_of(RecurrentCell("gru", 1, 1))
    attention.__class__ = DoubledAttention
    assert choose_backend(build_unroll_request(network)) is TORCH
    assert [name for name, _ in NUMBA.unsupported_properties(build_unroll_request(network))] == ["attention.kind"]
