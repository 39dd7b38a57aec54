"""Fields of option values are keyword arguments of public functions."""

import inspect

import pytest

import deploykit
from tests.support import Containing


@pytest.mark.parametrize(
    ("name", "arguments", "wrong", "nearest"),
    [
        ("benchmark", ("m",), "batches", "batch"),
        ("tune", ("m",), "budgets", "budget"),
        ("verify", ("a", "b"), "model", ""),
        ("placement", ("m",), "shape", "shapes"),
        ("write_input", ("d",), "output_names", ""),
        ("write_input", ("d",), "input", "inputs"),
        ("convert_records", ("s", "d"), "shard", "shard_size"),
    ],
)
def test_an_unknown_option_is_refused(name, arguments, wrong, nearest):
    with pytest.raises(TypeError) as error:
        getattr(deploykit, name)(*arguments, **{wrong: 1})
    assert str(error.value) == Containing(f"{name}()", f"'{wrong}'")
    assert nearest in str(error.value)


def test_signatures_spell_out_every_keyword():
    for name in deploykit.__all__:
        function = getattr(deploykit, name)
        if getattr(function, "command", None) is None:
            continue
        kinds = {each.kind for each in inspect.signature(function).parameters.values()}
        assert inspect.Parameter.VAR_KEYWORD not in kinds, name
    parameters = inspect.signature(deploykit.quantize).parameters
    assert {"calibration", "isa", "min_sqnr", "data", "outputs"} <= parameters.keys()
    assert parameters["max_drop"].default == 0.01


@pytest.mark.sampled
def test_the_part_of_a_model_holds_for_each_of_several(tmp_path):
    found = deploykit.benchmark(
        {"a": "models/fashion/fashion.keras"}, inputs=["images"], runs=3, seconds=1
    )
    assert [each.model for each in found.measurements] == ["a"]


def test_a_field_wins_over_the_value_that_has_it():
    options = deploykit.QuantizeOptions(minimum_size=5)
    with pytest.raises(deploykit.transforms.common.errors.GraphError, match="none"):
        deploykit.quantize("models/fashion/fashion.keras", options, engine="none")
