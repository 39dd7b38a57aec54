"""Requests walked by hand are what protobuf reads, in answers and in refusals; answers likewise."""

import itertools
import random

import numpy as np
import pytest
from google.protobuf.message import DecodeError

from deploykit.serving.protocol import predict_wire
from deploykit.serving.protocol.codec import decode_all, encode, varint
from deploykit.serving.protocol.errors import ServingError
from deploykit.serving.protocol.predict_wire import (
    ParsedRequest,
    answered_by,
    parse_request,
    walked,
    written,
)
from deploykit.serving.protocol.protos import PredictRequest, PredictResponse, TensorProto
from deploykit.transforms.ir.tensors import numpy_type, type_name, value_field
from tests.support import raises

NUMBERS = [number for number in range(1, 26) if number not in (20, 21)]
SHAPES = ((), (1,), (0,), (3,), (2, 0, 3), (2, 3), (1, 4, 1, 2), (1,) * 64, (1,) * 65, (-1,),
          (1 << 40,), (1 << 33, 0), None)  # fmt: skip
FORMS = ("content", "values", "one value", "too many values", "nothing", "both", "foreign values")
MUTATIONS = 4000


def bits(array: np.ndarray):
    """Return what an array is, bit by bit, so that NaN equals itself."""
    content = array.tolist() if array.dtype == object else array.tobytes()
    return array.dtype.str, array.dtype.name, array.shape, content


def outcome(request: ParsedRequest):
    """Return what a call goes on with, or the refusal that it is answered with."""
    spec = None if request.spec is None else request.spec.SerializeToString(deterministic=True)
    try:
        arrays = decode_all(request.tensors)
    except ServingError as error:
        return spec, list(request.outputs), error.status, error.message
    return spec, list(request.outputs), {alias: bits(each) for alias, each in arrays.items()}


def by_protobuf(content: bytes):
    try:
        return outcome(parse_request(PredictRequest.FromString(content)))
    except DecodeError:
        return None


def differs(content: bytes) -> bool:
    """Say whether bytes are read by hand, and otherwise than protobuf reads them."""
    found = walked(content)
    return found is not None and outcome(found) != by_protobuf(content)


def values(number: int, count: int) -> np.ndarray:
    """Return numbers of which some are small, or strings."""
    dtype = numpy_type(type_name(number))
    if dtype.kind == "O":
        return np.array([b"\xff" * n for n in range(count)], object)
    made = np.random.default_rng(count).integers(0, 2 if dtype.kind == "b" else 120, count)
    return made.astype(dtype)


def tensor(number: int, shape, form: str) -> TensorProto:
    sizes = [size for size in shape or () if 0 <= size < 100]
    count = int(np.prod(sizes))
    many = {"one value": 1, "too many values": count + 2, "nothing": 0}.get(form, count)
    try:
        proto = encode(values(number, many), type_name(number), form in ("content", "both"))
    except TypeError:
        proto = encode(values(number, many).astype(numpy_type(type_name(number))))
    proto.dtype = number
    proto.ClearField("tensor_shape")
    if form == "both" and number != 7:
        proto.MergeFrom(encode(values(number, 1), type_name(number)))
        proto.ClearField("tensor_shape")
    if form == "foreign values":
        (proto.double_val if value_field(number) != "double_val" else proto.float_val).append(1)
    for size in shape or ():
        proto.tensor_shape.dim.add().size = size
    proto.tensor_shape.unknown_rank = shape is None
    return proto


def request(*tensors: TensorProto, **spec) -> PredictRequest:
    made = PredictRequest()
    made.model_spec.name = "model"
    for key, value in spec.items():
        setattr(made.model_spec, key, value)
    for number, each in enumerate(tensors):
        made.inputs[f"x{number}"].CopyFrom(each)
    return made


def optional() -> list[PredictRequest]:
    """Return requests with each of the fields that most requests lack."""
    one = tensor(1, (2, 3), "content")
    full = request(one, signature_name="s", version_label="Käse")
    numbered = request(one)
    numbered.model_spec.version.value = 0
    filtered = request(one)
    filtered.output_filter.extend(["y", "y", ""])
    other = request(one)
    other.client_id = b"me"
    bare = request(one)
    bare.ClearField("model_spec")
    long_names = request(one, name="n" * 300), request(one, name="n" * 3000)
    alias = request()
    alias.inputs["a" * 300].CopyFrom(one)
    return [PredictRequest(), request(), full, numbered, filtered, other, bare, alias, *long_names,
            request(*[one] * 70), request(tensor(7, (70,), "values"))]  # fmt: skip


def matrix() -> list[bytes]:
    """Return requests of all types, forms, shapes and options."""
    made = [request(tensor(*each)) for each in itertools.product(NUMBERS, SHAPES, FORMS)]
    made += [request(tensor(n, (2,), "values"), tensor(n, (3,), "content")) for n in NUMBERS]
    untyped = request(tensor(1, (2,), "content"))
    untyped.inputs["x0"].dtype = 0
    return [each.SerializeToString() for each in (*made, *optional(), untyped)]


def mutated(content: bytes, change: random.Random) -> bytes:
    """Change some bytes: flip, set, cut out, insert, double or swap pieces."""
    made = bytearray(content)
    for _ in range(change.choice((1, 1, 2, 4))):
        place, size = change.randrange(len(made) + 1), change.choice((1, 1, 2, 5, 12))
        kind = change.randrange(6)
        if kind == 0 and place < len(made):
            made[place] ^= 1 << change.randrange(8)
        elif kind == 1 and place < len(made):
            made[place] = change.choice((0, 1, 2, 0x0A, 0x12, 0x22, 0x2A, 0x7F, 0x80, 0xFF))
        elif kind == 2:
            del made[place : place + size]
        elif kind == 3:
            made[place:place] = change.randbytes(size)
        elif kind == 4:
            made[place:place] = made[place : place + size]
        else:
            made[place:place] = b"\x80" * change.choice((1, 1, 4, 9))
    return bytes(made)


def mutations() -> list[bytes]:
    """Return damaged requests, and requests with damaged tensors whose lengths around are right."""
    change = random.Random(26)
    sound = [PredictRequest.FromString(each) for each in matrix() if len(each) < 200]
    made = []
    for _ in range(MUTATIONS // 2):
        whole = change.choice(sound)
        made.append(mutated(whole.SerializeToString(), change))
        inner = mutated(whole.inputs["x0"].SerializeToString(), change)
        entry = b"\x0a\x01y\x12" + varint(len(inner)) + inner
        made.append(b"\x12" + varint(len(entry)) + entry)
    return made


def spliced() -> list[bytes]:
    """Return requests that have a part twice, or their parts in another order."""
    change, made = random.Random(27), []
    for _ in range(200):
        forms = [(change.choice(NUMBERS), (2,), change.choice(FORMS[:2])) for _ in range(2)]
        first, second = (request(tensor(*each)) for each in forms)
        if change.random() < 0.8:
            second.ClearField("model_spec")
        if change.random() < 0.5:
            second.inputs["z"].CopyFrom(second.inputs["x0"])
            del second.inputs["x0"]
        parts = [first.SerializeToString(), second.SerializeToString()]
        made.append(b"".join(change.sample(parts, 2)))
    named, versioned = request(), request(name="", signature_name="s")
    versioned.model_spec.version.value = 3
    pair = [named.SerializeToString(), versioned.SerializeToString()]
    return [*made, b"".join(pair), b"".join(pair[::-1])]


@pytest.mark.parametrize("make", [matrix, mutations, spliced])
def test_it_reads_what_protobuf_reads(make):
    made = make()
    assert [content for content in made if differs(content)] == []
    assert sum(walked(content) is not None for content in made) > len(made) // 20


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("name", "variant"),
    [
        ("_checked", lambda tag, values: values),
        ("_pair", lambda data, start, end: ("x0", 5, end)),
        ("_tag_of", lambda dtype: 0x2A),
        ("_sizes", lambda content: (2,)),
        ("_number", lambda data, position: (data[position] & 0x7F, position + 1)),
    ],
)
def test_a_reader_that_is_wrong_is_found(name, variant, monkeypatch):
    monkeypatch.setattr(predict_wire, name, variant)

    def fails(content: bytes) -> bool:
        try:
            return differs(content)
        except Exception:
            return True

    assert any(fails(content) for content in (*matrix(), *mutations()))


def test_the_number_of_inputs_is_bounded():
    request = PredictRequest()
    for number in range(4096):
        request.inputs[str(number)].SetInParent()
    assert len(predict_wire.parse_request(request).tensors) == 4096
    request.inputs["another"].SetInParent()
    with raises(ServingError, "too-many"):
        predict_wire.parse_request(request)


@pytest.mark.parametrize("number", NUMBERS)
def test_common_requests_are_walked(number):
    """Otherwise all of the above would say nothing."""
    for form in ("content", "values"):
        content = request(tensor(number, (2, 3), form), signature_name="s").SerializeToString()
        halves = form == "values" and value_field(number) == "half_val"
        assert (walked(content) is None) == halves


def test_values_are_views_of_the_request():
    content = request(encode(np.ones((100, 100), np.float32), as_content=True),
                      encode(np.ones((100, 100), np.float32))).SerializeToString()  # fmt: skip
    whole = np.frombuffer(content, np.uint8)
    for array in decode_all(walked(content).tensors).values():
        assert np.shares_memory(array, whole)


@pytest.mark.parametrize("number", NUMBERS)
@pytest.mark.parametrize("as_content", [False, True])
def test_answers_are_what_protobuf_writes(number, as_content):
    arrays = {f"y{n}": values(number, int(np.prod(shape))).reshape(shape)
              for n, shape in enumerate([(), (0,), (3,), (2, 3), (200, 30)])}  # fmt: skip
    expected = PredictResponse()
    expected.model_spec.name, expected.model_spec.signature_name = "model", "s"
    expected.model_spec.version.value = 0
    for alias, array in arrays.items():
        expected.outputs[alias].CopyFrom(encode(array, as_content=as_content))
    content = written(answered_by("model", 0, "s"), arrays, as_content)
    assert PredictResponse.FromString(content) == expected
    assert not PredictResponse.FromString(written(b"", {}, as_content)).HasField("model_spec")
