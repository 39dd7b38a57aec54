"""What the client writes is what the server reads, and back; what is damaged is a sentence."""

import contextlib
import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from deploykit.serving.protocol.errors import ServingError
from deploykit.serving.protocol.open_inference import (
    HEADER_LENGTH,
    TYPES,
    InferRequest,
    InferResponse,
    ModelInferRequest,
    message,
    read_request,
    split_request,
    write_response,
)
from deploykit.serving.protocol.open_inference_client import (
    read_document,
    read_response,
    signature_of,
    write_document,
    write_request,
)
from deploykit.serving.rest.json_infer import binary_arrays, read_infer, split_body, write_infer
from deploykit.transforms.common.errors import Error
from deploykit.transforms.ir.tensors import Array, numpy_type
from tests.support import raises

SHAPES = array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=3)
TEXTS = st.text("aé漢\x00", max_size=9)


@st.composite
def tensors(draw, binary: bool = True) -> Array:
    """Draw an array of any datatype; without `binary`, one that JSON has a form for."""
    dtype, shape = numpy_type(TYPES[draw(st.sampled_from(list(TYPES)))]), draw(SHAPES)
    if dtype.kind == "O":
        item = st.binary(max_size=9) if binary else TEXTS.map(str.encode)
        array = np.empty(shape, object)
        array[...] = draw(arrays(object, shape, elements=item, fill=st.nothing()))
        return array
    if dtype.kind == "V":
        numbers = st.floats(width=16, allow_nan=False)
        return draw(arrays(np.float32, shape, elements=numbers)).astype(dtype)
    elements = {"allow_nan": False, "allow_infinity": binary} if dtype.kind == "f" else None
    return draw(arrays(dtype, shape, elements=elements))


NAMED = st.dictionaries(st.text("abc", min_size=1), tensors(), min_size=1, max_size=3)
NAMED_IN_JSON = st.dictionaries(
    st.text("abc", min_size=1), tensors(binary=False), min_size=1, max_size=3
)


def assert_same(found, expected):
    assert list(found) == list(expected)
    for name, array in expected.items():
        assert found[name].dtype == array.dtype, name
        assert found[name].shape == array.shape, name
        assert (found[name] == array).all(), name


@pytest.mark.sampled
@given(NAMED, st.sampled_from(["", "other"]), st.lists(st.sampled_from("xy"), unique=True))
def test_the_server_reads_what_is_sent_over_grpc(inputs, signature, outputs):
    asked = InferRequest("m", "stable", signature, "7", inputs, outputs)
    head, raw = split_request(write_request(asked))
    read = read_request(ModelInferRequest.FromString(head), raw)
    assert (read.model, read.version, read.signature, read.id) == ("m", "stable", signature, "7")
    assert list(read.outputs) == outputs
    assert_same(read.inputs, inputs)


def sent_over_http(asked: InferRequest, is_binary: bool):
    body, headers = write_document(asked, is_binary)
    lower = {name.lower(): value for name, value in headers.items()}
    document, content = split_body(body, lower)
    signature, inputs, more = read_infer(json.loads(bytes(document)))
    return signature, {**inputs, **binary_arrays(more.binary_inputs, content)}, more


@pytest.mark.parametrize("is_binary", [True, False])
@given(data=st.data(), signature=st.sampled_from(["", "other"]))
def test_the_server_reads_what_is_sent_over_http(is_binary, data, signature):
    inputs = data.draw(NAMED if is_binary else NAMED_IN_JSON)
    asked = InferRequest("m", "", signature, "7", inputs, ["x"])
    read_signature, read, more = sent_over_http(asked, is_binary)
    assert (read_signature, more.id, more.is_binary) == (signature, "7", is_binary)
    assert more.outputs == {"x": is_binary}
    assert_same(read, inputs)


@pytest.mark.sampled
@pytest.mark.parametrize("is_raw", [True, False])
@given(outputs=NAMED)
def test_the_answer_over_grpc_is_read(is_raw, outputs):
    assert_same(
        read_response(write_response(InferResponse("m", "1", "", outputs), is_raw)), outputs
    )


@pytest.mark.sampled
@pytest.mark.parametrize("is_binary", [True, False])
@given(data=st.data())
def test_the_answer_over_http_is_read(is_binary, data):
    outputs = data.draw(NAMED if is_binary else NAMED_IN_JSON)
    asked = sent_over_http(InferRequest("m"), is_binary)[2]
    body, _, headers = write_infer(InferResponse("m", "1", "", outputs), asked)
    assert_same(read_document(body, dict(headers).get(HEADER_LENGTH)), outputs)


def test_strings_of_numpy_are_sent_as_bytes():
    inputs = {"u": np.array(["é", "b"]), "s": np.array([b"a", b"bc"])}
    expected = {name: array.astype(object) for name, array in inputs.items()}
    expected["u"] = np.array(["é".encode(), b"b"], object)
    head, raw = split_request(write_request(InferRequest("m", inputs=inputs)))
    assert_same(read_request(ModelInferRequest.FromString(head), raw).inputs, expected)
    for is_binary in (True, False):
        assert_same(sent_over_http(InferRequest("m", inputs=inputs), is_binary)[1], expected)


def test_bytes_that_json_cannot_hold():
    asked = InferRequest("m", inputs={"x": np.array([b"\xff"], object)})
    with raises(Error, "input-not-utf8", name="x"):
        write_document(asked, is_binary=False)


def test_other_servers_nest_data_and_write_null():
    """MLServer writes NaN as null, and servers may nest lists as the shape says."""
    outputs = [
        {"name": "y", "datatype": "FP32", "shape": [2, 2], "data": [[1, None], [3.5, 4]]},
        {"name": "h", "datatype": "FP16", "shape": [2], "data": [None, 2]},
        {"name": "t", "datatype": "BYTES", "shape": [1, 2], "data": [["a", "é"]]},
        {"name": "n", "datatype": "UINT64", "shape": [1], "data": [2**64 - 1], "parameters": None},
        {"name": "scalar", "datatype": "INT8", "shape": [], "data": -3},
        {"name": "none", "datatype": "BOOL", "shape": [2, 0], "data": [[], []]},
    ]
    found = read_document(json.dumps({"outputs": outputs}).encode(), None)
    assert np.array_equal(found["y"], np.float32([[1, np.nan], [3.5, 4]]), equal_nan=True)
    assert np.array_equal(found["h"], np.float16([np.nan, 2]), equal_nan=True)
    assert found["t"].tolist() == [[b"a", "é".encode()]]
    assert found["n"].tolist() == [2**64 - 1]
    assert (found["scalar"].shape, found["scalar"]) == ((), -3)
    assert found["none"].shape == (2, 0)


@pytest.mark.parametrize(
    "body",
    [
        {}, [], {"outputs": 3}, {"outputs": [3]}, {"outputs": [{}]}, "nonsense",
        {"outputs": [{"name": "y", "datatype": "FP32", "shape": [2]}]},
        {"outputs": [{"name": "y", "datatype": "FP32", "shape": [2], "data": [1]}]},
        {"outputs": [{"name": "y", "datatype": "FP32", "shape": ["2"], "data": [1, 2]}]},
        {"outputs": [{"name": "y", "datatype": "FP32", "shape": [1], "data": [{}]}]},
        {"outputs": [{"name": "y", "datatype": "FP128", "shape": [1], "data": [1]}]},
        {"outputs": [{"name": "y", "datatype": "INT8", "shape": [1], "data": [1000]}]},
        {"outputs": [{"name": "y", "datatype": "INT64", "shape": [1], "data": [2**70]}]},
        {"outputs": [{"name": "y", "datatype": "BYTES", "shape": [1], "data": [1]}]},
        {"outputs": [{"name": "y", "datatype": "FP32", "shape": [1],
                      "parameters": {"binary_data_size": 4}}]},
        {"outputs": [{"name": "y", "datatype": "FP32", "shape": [1 << 40], "data": []}]},
    ],
    ids=str,
)  # fmt: skip
def test_what_is_no_answer_is_a_sentence(body):
    with pytest.raises(ServingError):
        read_document(json.dumps(body).encode(), None)


@pytest.mark.parametrize("length", ["x", "", "-3", "1e3", "99999999999999999999999"])
def test_a_length_that_is_none(length):
    with pytest.raises(ServingError):
        read_document(b'{"outputs":[]}', length)


ANSWER = InferResponse(
    "m", "1", "", {"x": np.arange(6, dtype=np.int16).reshape(2, 3), "t": np.array([b"ab"], object)}
)


@settings(max_examples=300)
@given(data=st.data(), is_raw=st.booleans())
def test_damage_is_a_serving_error(data, is_raw):
    """Nothing but ServingError comes of a byte that changed, or of an end that is missing."""
    grpc = write_response(ANSWER, is_raw)
    asked = sent_over_http(InferRequest("m"), is_raw)[2]
    http, _, headers = write_infer(ANSWER, asked)
    length = dict(headers).get(HEADER_LENGTH)
    for content, read in ((grpc, read_response), (http, lambda body: read_document(body, length))):
        place = data.draw(st.integers(0, len(content) - 1))
        changed = bytearray(content)
        changed[place] = data.draw(st.integers(0, 255))
        for damaged in (bytes(changed), content[:place]):
            with contextlib.suppress(ServingError):
                read(damaged)


def test_metadata_of_a_server_that_knows_other_types():
    metadata = message("ModelMetadataResponse")(name="m", platform="anything")
    metadata.inputs.add(name="x", datatype="FP16", shape=[-1, 3])
    metadata.inputs.add(name="t", datatype="BYTES", shape=[-1])
    metadata.outputs.add(name="y", datatype="FP8", shape=[])
    found = signature_of(metadata)
    assert {name: (each.dtype, each.shape) for name, each in found.inputs.items()} == {
        "x": ("float16", (-1, 3)), "t": ("string", (-1,))
    }  # fmt: skip
    assert found.outputs["y"].dtype == "FP8"
    assert [each.is_any_shape for each in found.inputs.values()] == [False, True]
