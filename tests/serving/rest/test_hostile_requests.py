"""Requests that ask for far more than they are: each is refused, soon and in little memory."""

import base64
import gzip
import random
import tracemalloc

import pytest

from deploykit.serving.execution.classify_regress import with_context
from deploykit.serving.grpc_server.services import examples_of
from deploykit.serving.protocol.codec import MAX_FILLED_BYTES, decode_all
from deploykit.serving.protocol.errors import ServingError
from deploykit.serving.protocol.predict_wire import parse_request
from deploykit.serving.protocol.protos import Example, Input, PredictRequest
from deploykit.serving.protocol.signatures import Tensor
from deploykit.serving.rest import rest
from deploykit.serving.rest.http_requests import HttpError, HttpLimits, Request
from deploykit.serving.rest.json_documents import parse
from deploykit.serving.rest.json_requests import read_examples
from deploykit.serving.rest.json_tensors import read_inputs
from tests.support import raises

MIB = 1 << 20
INPUTS = {"x": Tensor("x:0", "float32", (-1, 4)), "s": Tensor("s:0", "string", (-1,))}


class Peak:
    """The most memory that Python held in a block."""

    def __enter__(self):
        tracemalloc.start()
        return self

    def __exit__(self, *_):
        self.bytes = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()


def packed(body: bytes) -> Request:
    headers = {"content-encoding": "gzip"}
    return Request("POST", "/", headers, gzip.compress(body), "1.1", True)


@pytest.mark.sampled
@pytest.mark.parametrize("body", [b"[" * (100 * MIB), b" " * (100 * MIB), b"0," * (50 * MIB)])
def test_a_body_that_unpacks_to_far_more_than_it_is(body):
    request = packed(body)
    with Peak() as peak, raises(HttpError, "http-body-unpacks", most=100):
        rest._body(request, HttpLimits(256 * MIB))
    assert peak.bytes < 64 * MIB


@pytest.mark.sampled
def test_an_honest_body_may_be_packed_well():
    rng = random.Random(1)
    numbers = str([rng.random() for _ in range(500_000)]).encode()
    for body in (b"0," * MIB, numbers):
        assert rest._body(packed(body), HttpLimits(256 * MIB)) == body


DEEP = 1 << 19
BODIES = {
    "lists": b'{"instances": ' + b"[" * DEEP + b"]" * DEEP + b"}",
    "lists without end": b'{"instances": ' + b"[" * DEEP,
    "objects": b'{"instances": ' + b'{"a":' * DEEP + b"1" + b"}" * DEEP + b"}",
    "lists with NaN": b'{"inputs": [NaN, ' + b"[" * DEEP + b"]" * DEEP + b"]}",
    "digits": b'{"inputs": {"x": ' + b"9" * DEEP + b"}}",
    "digits with NaN": b'{"inputs": {"x": [NaN, ' + b"9" * DEEP + b"]}}",
    "an exponent": b'{"inputs": {"x": [[1e999999999]]}}',
    "an exponent with NaN": b'{"inputs": {"x": [[NaN, 1e999999999]]}}',
    "a fraction": b'{"inputs": {"x": ["0.' + b"0" * DEEP + b'1"]}}',
    "no base 64": b'{"inputs": {"s": [{"b64": "' + b"*" * DEEP + b'"}]}}',
    "65 axes": b'{"inputs": {"x": ' + b"[" * 65 + b"1" + b"]" * 65 + b"}}",
    "zeros": bytes(DEEP),
    "surrogates": b'{"inputs": {"s": ["\\ud800"]}}',
    "a wide row beside a small one": b'{"inputs": {"x": [[' + b"1," * DEEP + b"1],[1]]}}",
}


@pytest.mark.parametrize("kind", BODIES)
def test_documents_that_are_refused(kind):
    with Peak() as peak, pytest.raises(ServingError) as found:
        read_inputs(parse(BODIES[kind]), INPUTS)
    assert found.value.status == "INVALID_ARGUMENT"
    assert len(found.value.message) < 1024
    assert "\n" not in found.value.message
    assert peak.bytes < 64 * MIB


def test_bytes_in_base_64_take_no_more_than_they_are():
    body = b'{"inputs": {"s": [{"b64": "' + base64.b64encode(bytes(2 * MIB)) + b'"}], "x": []}}'
    with Peak() as peak:
        arrays, _ = read_inputs(parse(body), INPUTS)
    assert arrays["s"][0] == bytes(2 * MIB)
    assert peak.bytes < 64 * MIB


@pytest.mark.sampled
def test_a_context_is_not_put_into_more_examples_than_there_is_room_for():
    context = Example()
    context.features.feature["x"].bytes_list.value.append(bytes(MIB))
    given = Input()
    given.example_list_with_context.context.CopyFrom(context)
    for _ in range(20_000):
        given.example_list_with_context.examples.add()
    with Peak() as peak, raises(ServingError, "context-too-large", examples=20000):
        examples_of(given)
    assert peak.bytes < 64 * MIB
    document = {"context": {"x": "a" * MIB}, "examples": [{}] * 20_000}
    with Peak() as peak, raises(ServingError, "context-too-large", examples=20000):
        read_examples(document)
    assert peak.bytes < 64 * MIB


def test_a_context_that_fits_is_in_each_example():
    each = bytes(MAX_FILLED_BYTES // 1024)
    assert with_context(each, [b"a"] * 1024) == [each + b"a"] * 1024
    with pytest.raises(ServingError):
        with_context(each, [b"a"] * 1025)


@pytest.mark.sampled
@pytest.mark.parametrize("kind", ["features", "empty values", "empty lists"])
def test_examples_of_many_parts_take_what_they_are(kind):
    example = Example()
    if kind == "features":
        for number in range(100_000):
            example.features.feature[str(number)].SetInParent()
    else:
        value = [b""] * 1_000_000 if kind == "empty values" else []
        example.features.feature["x"].bytes_list.value.extend(value)
    given = Input()
    given.example_list.examples.append(example)
    size = given.ByteSize()
    with Peak() as peak:
        (found,) = examples_of(given)
    assert Example.FromString(found) == example
    assert peak.bytes < 4 * size + MIB


def test_requests_of_a_few_bytes_take_little_memory():
    """Generated: each asks for more than it has in shapes, types and fields that lie."""
    rng = random.Random(3)
    refused = 0
    for _ in range(500):
        request = PredictRequest()
        for alias in ("x", "s", "other")[: rng.randint(1, 3)]:
            tensor = request.inputs[alias]
            tensor.dtype = rng.choice(
                [1, 2, 3, 4, 7, 8, 9, 10, 14, 18, 19, 20, 21, 22, 23, 99, 101]
            )
            for _ in range(rng.randint(0, 4)):
                size = rng.choice([0, 1, 3, -1, 1 << 10, 1 << 20, 1 << 28, 1 << 40, (1 << 63) - 1])
                tensor.tensor_shape.dim.add(size=size)
            tensor.tensor_shape.unknown_rank = rng.random() < 0.1
            if rng.random() < 0.5:
                tensor.tensor_content = rng.randbytes(rng.randrange(20))
            if rng.random() < 0.5:
                tensor.float_val.append(float("nan"))
            if rng.random() < 0.3:
                tensor.string_val.append(b"a")
            if rng.random() < 0.1:
                tensor.variant_val.add(type_name="tensorflow::TensorList", metadata=b"\xff")
        with Peak() as peak:
            try:
                decode_all(parse_request(request).tensors)
            except ServingError as error:
                refused += error.status == "INVALID_ARGUMENT"
        assert peak.bytes < 2 * MAX_FILLED_BYTES + MIB, request
    assert refused > 300
