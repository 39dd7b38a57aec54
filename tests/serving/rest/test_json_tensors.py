"""JSON <-> arrays: what goes out comes back, and what does not fit is refused in one sentence."""

import base64
import json
import math
import re

import ml_dtypes
import numpy as np
import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from deploykit.serving.protocol.errors import ServingError
from deploykit.serving.protocol.protos import Example
from deploykit.serving.protocol.signatures import Tensor
from deploykit.serving.rest.json_documents import parse
from deploykit.serving.rest.json_outputs import to_json, write_classes, write_outputs, write_values
from deploykit.serving.rest.json_requests import read_examples
from deploykit.serving.rest.json_tensors import read_inputs, to_array
from deploykit.transforms.common.errors import Error
from tests.support import says, shows

NUMBERS = [
    "float16", "float32", "float64", "int8", "int16", "int32", "int64",
    "uint8", "uint16", "uint32", "uint64", "bool",
]  # fmt: skip
SHAPES = hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4)


def refusal(call, *arguments) -> str:
    """Return the message of a refusal, which is one sentence of INVALID_ARGUMENT."""
    with pytest.raises(ServingError) as error:
        call(*arguments)
    assert error.value.status == "INVALID_ARGUMENT"
    assert error.value.message
    assert "\n" not in error.value.message
    return error.value.message


def outcome(call):
    """Return what a call returns, or its refusal."""
    try:
        return call()
    except ServingError as error:
        return error


def inputs(**dtypes: str) -> dict[str, Tensor]:
    return {alias: Tensor(f"{alias}:0", dtype, None) for alias, dtype in dtypes.items()}


def read(text: str, **dtypes: str):
    return read_inputs(parse(text.encode()), inputs(**dtypes))[0]


def same(left, right) -> bool:
    """Say whether arrays are equal in type, shape and each value; NaN equals NaN."""
    if left.dtype != right.dtype or left.shape != right.shape:
        return False
    return bool(np.array_equal(left, right, equal_nan=left.dtype.kind == "f"))


@given(st.data(), st.sampled_from(NUMBERS))
def test_numbers_come_back(data, dtype):
    array = data.draw(hnp.arrays(dtype, SHAPES))
    document = parse(b'{"inputs": ' + to_json("x", array) + b"}")
    back = read_inputs(document, inputs(x=dtype))[0]["x"]
    if 0 in array.shape:  # JSON says no more of an empty array than where it ends
        assert back.size == 0
        assert back.dtype == array.dtype
    else:
        assert same(back, array)


def test_a_number_that_changed_is_seen():
    assert not same(np.float32([1.0]), np.float32([np.nextafter(np.float32(1), np.float32(2))]))
    assert not same(np.float32([1.0]), np.float64([1.0]))


@pytest.mark.sampled
@given(hnp.arrays("float32", SHAPES))
def test_bfloat16_comes_back(array):
    narrow = array.astype(ml_dtypes.bfloat16)
    back = to_array("x", parse(b'{"x": ' + to_json("x", narrow) + b"}")["x"], "bfloat16")
    assert back.dtype == narrow.dtype
    if narrow.size:
        assert same(back.astype(np.float32), narrow.astype(np.float32))


@pytest.mark.sampled
@given(hnp.arrays("float32", SHAPES))
def test_python_reads_what_is_written(array):
    text = to_json("x", array).decode()
    assert same(np.array(json.loads(text), np.float32).reshape(array.shape), array)


@given(st.lists(st.binary(), min_size=1), st.booleans())
def test_bytes_come_back(values, as_bytes):
    array = np.empty(len(values), object)
    array[:] = values
    written = to_json("x_bytes" if as_bytes else "x", array)
    back = to_array("x", orjson.loads(written), "string")
    assert back.tolist() == values
    if as_bytes:
        assert all(type(each) is dict for each in orjson.loads(written))


@pytest.mark.sampled
@given(st.lists(st.text(st.characters(exclude_categories=["Cs"])), min_size=1))
def test_texts_stay_texts(values):
    array = np.empty(len(values), object)
    array[:] = [value.encode() for value in values]
    assert orjson.loads(to_json("x", array)) == values


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
        lambda children: (
            st.lists(children, max_size=4)
            | st.dictionaries(st.sampled_from(["b64", "x", "y", "k"]), children, max_size=3)
        ),
        max_leaves=12,
    ),
    st.sampled_from([*NUMBERS, "string", "complex64"]),
    st.sampled_from(["instances", "inputs"]),
)
@settings(max_examples=300)
def test_whatever_is_sent_is_an_array_or_one_sentence(value, dtype, key):
    found = outcome(lambda: read_inputs({key: value}, inputs(x=dtype))[0])
    if type(found) is dict:  # it is empty where an object names no input
        for array in found.values():
            assert array.dtype == (np.object_ if dtype == "string" else np.dtype(dtype))
    else:
        assert found.status in ("INVALID_ARGUMENT", "UNIMPLEMENTED")
        assert found.message.isprintable()


@given(st.binary(max_size=60))
def test_whatever_body_is_an_object_or_one_sentence(body):
    found = outcome(lambda: parse(body))
    assert type(found) is dict or found.status == "INVALID_ARGUMENT"


def test_numbers_are_written_short():
    array = np.array([[0.2, 1.0], [3.3, -0.0]], np.float32)
    assert to_json("x", array) == b"[[0.2,1.0],[3.3,-0.0]]"
    assert to_json("x", np.array(2.5, np.float32)) == b"2.5"
    assert to_json("x", np.arange(6, dtype=np.int8).reshape(2, 3).T) == b"[[0,3],[1,4],[2,5]]"


def test_numbers_that_json_lacks_are_literals():
    array = np.array([[math.nan, 1.0], [math.inf, -math.inf]], np.float64)
    assert to_json("x", array) == b"[[NaN,1.0],[Infinity,-Infinity]]"
    assert to_json("x", np.array(math.nan, np.float32)) == b"NaN"
    back = read('{"inputs": [NaN, Infinity, -Infinity, 1]}', x="float32")["x"]
    assert same(back, np.float32([math.nan, math.inf, -math.inf, 1]))


def test_rows_and_columns_are_alike():
    by_row = read(
        '{"instances": [{"a": [1], "b": "x"}, {"a": [2], "b": "y"}]}', a="int32", b="string"
    )
    by_column = read('{"inputs": {"a": [[1], [2]], "b": ["x", "y"]}}', a="int32", b="string")
    for found in (by_row, by_column):
        assert same(found["a"], np.int32([[1], [2]]))
        assert found["b"].tolist() == [b"x", b"y"]
    document = parse(b'{"instances": [1]}')
    assert read_inputs(document, inputs(x="int32"))[1]
    assert not read_inputs(parse(b'{"inputs": [1]}'), inputs(x="int32"))[1]


def test_one_input_may_be_named_or_not():
    for text in ('{"instances": [1, 2]}', '{"instances": [{"x": 1}, {"x": 2}]}',
                 '{"inputs": [1, 2]}', '{"inputs": {"x": [1, 2]}}'):  # fmt: skip
        assert same(read(text, x="float32")["x"], np.float32([1, 2])), text


def test_binary_values():
    picture = bytes(range(256))
    text = base64.b64encode(picture).decode()
    for given_text in (text, text.rstrip("="), f"{text[:20]}\n{text[20:]}"):
        body = json.dumps({"instances": [{"b64": given_text}, "text"]})
        assert read(body, x="string")["x"].tolist() == [picture, b"text"]
    assert read(json.dumps({"inputs": {"b64": text}}), x="string")["x"][()] == picture


def test_a_byte_order_mark_is_passed_over():
    assert parse(b'\xef\xbb\xbf{"a": 1}') == {"a": 1}


REFUSED = {
    '{"inputs": [1, 2], "instances": [1]}': says("json-two-keys"),
    "{}": says("json-key-missing", columns="inputs", rows="instances"),
    '{"instances": 1}': says("json-rows-not-array", key="instances"),
    '{"instances": []}': says("json-rows-empty", key="instances"),
    '{"instances": [[1], [1, 2]]}': says(
        "json-row-failed",
        number=1,
        rows="instances",
        reason=str(Error("json-row-size", expected=1, got=2, name="x")),
    ),
    '{"instances": [[1], 2]}': says("json-row-failed", number=1, rows="instances"),
    '{"instances": [1, [2]]}': says("json-row-failed", number=1, rows="instances"),
    '{"instances": [{"x": 1}, 2]}': says("json-row-failed", number=1),
    '{"instances": [2, {"x": 1}]}': says("json-row-failed", number=0),
    '{"instances": [{"x": 1}, {"y": 1}]}': says("json-row-failed", number=1, rows="instances"),
    '{"instances": [{"y": 1}]}': says("json-row-input-unknown", name='"y"', inputs=["x"]),
    '{"inputs": ["a"]}': says("json-value-not-of-type", got='"a"', kind="String", dtype="float32"),
    '{"inputs": [null]}': says("json-value-not-of-type", kind="Null", dtype="float32"),
    '{"inputs": [1, true]}': says(
        "json-value-not-of-type", got="true", kind="True", dtype="float32"
    ),
    '{"inputs": [{"b64": "YQ=="}]}': says("json-value-not-of-type", kind="Object", dtype="float32"),
    '{"inputs": [1.0, 1e39]}': says("json-value-range", got="1e+39"),
    '{"inputs": [NaN, 1e400]}': says("json-not-parsed", reason="number 1e400 is too large"),
    '{"inputs": [1e400]}': says("json-not-parsed", reason="number 1e400 is too large"),
    f'{{"inputs": {"[" * 100}1{"]" * 100}}}': says("json-lists-too-deep", most=64),
    f'{{"inputs": {"[" * 5000}1{"]" * 5000}}}': says("json-not-parsed"),
    f'{{"inputs": {"[" * 5000}NaN{"]" * 5000}}}': says("json-nested-too-deep"),
    "": says("json-empty"),
    "instances = [1, 2]": says("json-not-parsed"),
    "[1]": says("json-not-object"),
    "NaN": says("json-not-object", got="NaN"),
}


@pytest.mark.parametrize(("text", "words"), REFUSED.items(), ids=range(len(REFUSED)))
def test_refused(text, words):
    assert re.search(words, refusal(lambda: read(text, x="float32")))


@pytest.mark.parametrize(
    ("dtype", "value", "words"),
    [
        ("int32", "[1.5]", says("json-value-not-of-type", got="1.5", kind="Number", dtype="int32")),
        ("int32", "[2.0]", says("json-value-not-of-type", got="2.0", kind="Number", dtype="int32")),
        ("int32", "[true]", says("json-value-not-of-type", kind="True", dtype="int32")),
        ("int32", "[1, 2147483648]", says("json-value-range", got="2147483648")),
        ("int8", "[-129]", says("json-value-range", got="-129", dtype="int8")),
        ("uint8", "[1, -1]", says("json-value-range", got="-1", dtype="uint8")),
        ("uint64", "[18446744073709551616]", says("json-value-not-of-type", dtype="uint64")),
        ("int64", "[9223372036854775808]", says("json-value-range", dtype="int64")),
        ("float16", "[1.0, 70000]", says("json-value-range", got="70000")),
        ("bool", "[1]", says("json-value-not-of-type", kind="Number", dtype="bool")),
        ("string", "[1]", says("json-value-not-of-type", kind="Number", dtype="string")),
        ("string", '[{"b64": 1}]', says("json-value-not-of-type", kind="Object", dtype="string")),
        ("string", '["a", {"b64": "a", "c": "d"}]', says("json-value-not-of-type", kind="Object")),
        ("string", '["a", {"b64": "?"}]', says("json-bytes-invalid")),
        ("string", '["\\ud800", NaN]', says("json-not-utf8")),
    ],
)
def test_values_of_another_type_are_refused(dtype, value, words):
    assert re.search(words, refusal(lambda: read(f'{{"inputs": {value}}}', x=dtype)))


def test_the_largest_of_each_type_is_taken():
    for dtype in ("int8", "int32", "int64", "uint8", "uint64"):
        limits = np.iinfo(dtype)
        found = read(f'{{"inputs": [{limits.min}, {limits.max}]}}', x=dtype)["x"]
        assert same(found, np.array([limits.min, limits.max], dtype))


def test_inputs_of_several_need_their_names():
    message = refusal(lambda: read('{"instances": [1]}', a="int32", b="int32"))
    assert shows(message, "json-input-key")
    assert "a, b" in message
    assert "an object" in refusal(lambda: read('{"inputs": [1]}', a="int32", b="int32"))


def test_half_a_character_is_no_text():
    message = refusal(lambda: to_array("x", ["\ud800"], "string"))
    assert shows(message, "json-bytes-invalid")


def test_a_type_that_json_lacks():
    for call in (
        lambda: to_array("x", [1], "complex64"),
        lambda: to_json("x", np.zeros(1, np.complex64)),
    ):
        with pytest.raises(ServingError) as error:
            call()
        assert error.value.status == "UNIMPLEMENTED"
        assert "gRPC" in error.value.message


def test_outputs():
    one, two = np.float32([[1], [2]]), np.array([b"a", b"b"], object)
    assert write_outputs({"y": one}, True) == b'{"predictions":[[1.0],[2.0]]}'
    assert write_outputs({"y": one}, False) == b'{"outputs":[[1.0],[2.0]]}'
    both = {"y": one, "z_bytes": two}
    assert orjson.loads(write_outputs(both, True)) == {
        "predictions": [{"y": [1.0], "z_bytes": {"b64": "YQ=="}},
                        {"y": [2.0], "z_bytes": {"b64": "Yg=="}}]
    }  # fmt: skip
    assert orjson.loads(write_outputs(both, False)) == {
        "outputs": {"y": [[1.0], [2.0]], "z_bytes": [{"b64": "YQ=="}, {"b64": "Yg=="}]}
    }


def test_outputs_that_are_no_rows():
    scalar, pair = np.float32(1).reshape(()), np.zeros(2)
    assert shows(refusal(write_outputs, {"y": scalar}, True), "json-output-scalar")
    message = refusal(write_outputs, {"y": pair, "z": np.zeros(3)}, True)
    assert shows(message, "json-output-batch", got=3, expected=2)
    assert "'inputs'" in message
    assert write_outputs({"y": scalar}, False) == b'{"outputs":1.0}'
    assert "empty" in refusal(write_outputs, {}, True)


def test_classes_and_values():
    classes = [[("a", float(np.float32(0.2))), ("", math.nan)], []]
    assert write_classes(classes) == b'{"results":[[["a",0.2],["",NaN]],[]]}'
    assert write_values([float(np.float32(0.1)), math.inf]) == b'{"results":[0.1,Infinity]}'


def example(**features) -> Example:
    document = parse(orjson.dumps({"examples": [features]}))
    return Example.FromString(read_examples(document)[0])


def test_features():
    found = example(
        f=[1.5, 2.0], i=7, b=[True, False], s="é", raw=[{"b64": "/w=="}, "a"], none=[]
    ).features.feature
    assert list(found["f"].float_list.value) == [1.5, 2.0]
    assert list(found["i"].int64_list.value) == [7]
    assert list(found["b"].int64_list.value) == [1, 0]
    assert list(found["s"].bytes_list.value) == ["é".encode()]
    assert list(found["raw"].bytes_list.value) == [b"\xff", b"a"]
    assert found["none"].WhichOneof("kind") is None


def test_the_context_is_in_each_example():
    document = {"context": {"c": 1, "x": 5}, "examples": [{"x": 2}, {"y": 3}]}
    first, second = map(Example.FromString, read_examples(document))
    assert first.features.feature["c"].int64_list.value == [1]
    assert first.features.feature["x"].int64_list.value == [2]
    assert second.features.feature["x"].int64_list.value == [5]


@pytest.mark.parametrize(
    ("document", "words"),
    [
        ({}, says("json-examples-missing", key="examples")),
        ({"examples": {}}, says("json-not-an-array")),
        ({"examples": []}, says("json-examples-empty")),
        ({"examples": [[1]]}, says("json-example-not-object", got="Array")),
        ({"examples": [{}, 1]}, says("json-example-not-object", source="example 1", got="Number")),
        ({"context": "a", "examples": [{}]}, says("json-example-not-object", source="context")),
        ({"examples": [{"x": None}]}, says("json-feature-type", got="Null")),
        ({"examples": [{"x": [[1]]}]}, says("json-feature-type", got="Array")),
        ({"examples": [{"x": {"a": 1}}]}, says("json-feature-type", got="Object")),
        ({"examples": [{"x": [1, 2.5]}]}, says("json-feature-mixed", got=["float", "int64"])),
        ({"examples": [{"x": ["a", 1]}]}, says("json-feature-mixed", got=["bytes", "int64"])),
        ({"examples": [{"x": [1 << 63]}]}, says("json-feature-not-int64")),
        ({"examples": [{"x": 1e39}]}, says("json-feature-not-float32")),
        ({"examples": [{"x": {"b64": "?"}}]}, says("json-bytes-invalid")),
        ({"examples": [{"\ud800": 1}]}, says("json-feature-name")),
        ({"examples": [{"x": "\ud800"}]}, says("json-bytes-invalid")),
    ],
)
def test_examples_that_are_refused(document, words):
    assert re.search(words, refusal(read_examples, document))
