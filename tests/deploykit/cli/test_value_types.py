"""Values of options: what is refused, and with which words."""

import click
import pytest

from deploykit.cli import value_types as of
from deploykit.cli.formats import FORMATS
from deploykit.cli.value_types import Value
from deploykit.transforms.common.errors import Error
from tests.deploykit.cli.test_conditions import COMMANDS, parsed
from tests.deploykit.cli.test_standard_streams import PATHS, TEXTS, line_with
from tests.support import because, raises, shows

NUMBERS = {
    "whole": (of.whole(0), "10", 10),
    "counts": (of.counts(100), "8,10", (8, 10)),
    "number": (of.number(), "10.5", 10.5),
    "percent": (of.percent(0, 10), "10%", 0.1),
    "share": (of.percent(0, 10), "0.10", 0.1),
    "span": (of.span(1, 100), "1..10", (1, 10)),
    "threads": (Value("N", of.threads), "10x1", ((10, 1),)),
    "thread pair": (Value("N", of.thread_pair), "10x1", (10, 1)),
    "range": (Value("LO,HI", of.float_range), "0,10", (0, 10)),
    "shape": (Value("N", of.shape), "x=2,10", ("x", (2, 10))),
}


@pytest.mark.parametrize("name", NUMBERS)
def test_numbers_are_ascii_digits(name):
    kind, text, value = NUMBERS[name]
    assert kind.convert(text, None, None) == value
    for wrong in ("1_0", "1\N{ARABIC-INDIC DIGIT ZERO}", "\N{FULLWIDTH DIGIT ONE}0"):
        with raises(Error, "option-value"):
            kind.convert(text.replace("10", wrong), None, None)


@pytest.mark.parametrize(
    "text", ["-inf,inf", "0,1e39", "nan,1", "0,nan", "1,0", "1,1", "0,1e-50", "1", "1,2,3", "a,b"]
)
def test_a_range_is_two_finite_float32_numbers(text):
    with raises(Error, "option-value", got=text,
                expected="two finite float32 numbers LO,HI with LO < HI"):  # fmt: skip
        Value("LO,HI", of.float_range).convert(text, None, None)


def test_a_range_may_be_all_of_float32():
    most = 3.4028234663852886e38
    assert Value("LO,HI", of.float_range).convert(f"{-most},{most}", None, None) == (-most, most)


@pytest.mark.parametrize(("name", "twice"), [
    ("pin", ("x=1", "x:0=2")), ("shape", ("x=1", "x=2")), ("alias", ("x=a", "x=b")),
])  # fmt: skip
def test_a_name_given_twice_is_refused(name, twice):
    made = FORMATS[name].type({})
    option = click.Option([f"--{name}"])
    pairs = tuple(made.convert(text, None, None) for text in twice)
    with raises(Error, "given-twice", name="x"):
        FORMATS[name].convert(click.Context(click.Command("c")), option, pairs)


OUTPUTS = [(words, option.opts[0]) for words, command in COMMANDS.items()
           for option in command.params if getattr(option, "is_output", False)]  # fmt: skip


@pytest.mark.parametrize(("words", "option"), OUTPUTS)
def test_an_output_given_twice_is_refused(words, option):
    name = next(each.name for each in COMMANDS[words].params if option in each.opts)
    line = [*line_with(tuple(words.split()), name, "x.svg", "m.pb"), option, "y.svg"]
    with raises(Error, "given-twice", name=option):
        parsed(words, line[len(words.split()) :])


def test_outputs_are_found():
    assert {option for _, option in OUTPUTS} >= {"-o", "--csv", "--plot", "--trace"}


NOT_EMPTY = [
    (words, name)
    for words, name in [*PATHS, *TEXTS]
    if words != ("serve",) or name == "base_dir"  # TensorFlow Serving takes an empty path as none
    if name != "root_dir"  # which is empty by default
]


@pytest.mark.sampled
@pytest.mark.parametrize(("words", "name"), NOT_EMPTY)
def test_an_empty_path_is_refused(deploykit, words, name):
    found = deploykit(*line_with(words, name, "", "nothing.pb"))
    assert found.status == 2
    assert shows(found.stderr, "option-value", got="", expected=because("path-not-empty"))


def test_an_empty_path_of_a_serving_flag_is_not_given():
    given = ["models", "--ssl_config_file=", "--grpc_socket_path=", "--monitoring_config_file="]
    values = parsed("serve", given).params
    assert values["ssl_config_file"] is values["monitoring_config_file"] is None
    assert values["grpc_socket_path"] == ""
