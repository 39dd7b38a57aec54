"""ModelInferRequest -> arrays -> ModelInferResponse: what goes in comes out, and lies are refused.

Requests are written, and answers read, with protobuf's own classes.
"""

import json
import random
import re
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deploykit.serving.protocol.codec import MAX_STRINGS
from deploykit.serving.protocol.errors import ServingError
from deploykit.serving.protocol.open_inference import (
    TYPES,
    InferResponse,
    check_typed_contents,
    from_raw,
    from_values,
    read_request,
    split_request,
    write_response,
)
from deploykit.transforms.common.errors import GraphError
from deploykit.transforms.ir.protos import private_messages
from deploykit.transforms.ir.tensors import numpy_type
from tests.hostile import mutations
from tests.hostile.wire import block
from tests.serving.infer_messages import FIELDS, infer, tensor_of, values_of, with_tensor
from tests.support import Containing, raises, says, shows

MIB = 1 << 20
FOUND = private_messages("inference", ["ModelInferRequest", "ModelInferResponse"])
Request, Response = FOUND["ModelInferRequest"], FOUND["ModelInferResponse"]
DTYPES = {datatype: numpy_type(type_) for datatype, type_ in TYPES.items()}
DATATYPES = st.sampled_from(list(TYPES))
SHAPES = st.lists(st.integers(0, 3), max_size=5).map(tuple)
SIZES = st.sampled_from([-(1 << 63), -1, 0, 1, 2, 3, 1 << 20, 1 << 33, 1 << 62, (1 << 63) - 1])


def read(content: bytes):
    head, raw = split_request(content)
    return read_request(Request.FromString(head), raw)


def outcome(content: bytes):
    """Return what is read, or the message of a refusal."""
    try:
        return read(content)
    except ServingError as error:
        return f"{error.status}: {error.message}"


def refusal(content: bytes) -> str:
    with pytest.raises(ServingError) as error:
        read(content)
    assert error.value.status == "INVALID_ARGUMENT"
    return error.value.message


def bits(array: np.ndarray):
    content = array.tolist() if array.dtype == object else array.tobytes()
    return array.dtype, array.shape, content


@st.composite
def arrays(draw, datatype: str | None = None):
    """Return a datatype and an array of it, of any bits."""
    datatype = datatype or draw(DATATYPES)
    shape = draw(SHAPES)
    count = int(np.prod(shape))
    if datatype == "BYTES":
        array = np.empty(count, object)
        array[:] = draw(st.lists(st.binary(max_size=5), min_size=count, max_size=count))
        return datatype, array.reshape(shape)
    dtype = DTYPES[datatype]
    if datatype == "BOOL":
        flags = draw(st.lists(st.booleans(), min_size=count, max_size=count))
        return datatype, np.array(flags, bool).reshape(shape)
    size = count * dtype.itemsize
    content = draw(st.binary(min_size=size, max_size=size))
    return datatype, np.frombuffer(content, dtype).reshape(shape)


TYPED = arrays().filter(lambda each: each[0] not in ("FP16", "BF16"))


@pytest.mark.sampled
@settings(max_examples=200)
@given(st.lists(arrays(), min_size=1, max_size=4), st.text(max_size=60))
def test_raw_contents_round_trip(tensors, request_id):
    request = infer(id=request_id)
    for number, (datatype, array) in enumerate(tensors):
        with_tensor(request, f"x{number}", datatype, array, raw=True)
    found = read(request.SerializeToString())
    assert found.id == request_id
    assert list(map(bits, found.inputs.values())) == [bits(array) for _, array in tensors]
    answer = InferResponse("m", "7", request_id, found.inputs)
    written = Response.FromString(write_response(answer, is_raw=True))
    expected = Response(model_name="m", model_version="7", id=request_id)
    for sent in request.inputs:
        expected.outputs.add(name=sent.name, datatype=sent.datatype, shape=sent.shape)
    expected.raw_output_contents.extend(request.raw_input_contents)
    assert written == expected


@pytest.mark.sampled
@settings(max_examples=200)
@given(st.lists(TYPED, min_size=1, max_size=4))
def test_typed_contents_round_trip(tensors):
    request = infer()
    for number, (datatype, array) in enumerate(tensors):
        with_tensor(request, f"x{number}", datatype, array, raw=False)
    found = read(request.SerializeToString())
    # As float64, a signalling NaN becomes a quiet one.
    for (_, array), read_back in zip(tensors, found.inputs.values(), strict=True):
        assert (read_back.dtype, read_back.shape) == (array.dtype, array.shape)
        np.testing.assert_array_equal(read_back, array)
    written = write_response(InferResponse("m", "7", "", found.inputs), is_raw=False)
    answer = Response.FromString(written)
    assert not answer.raw_output_contents
    for output, (datatype, array) in zip(answer.outputs, tensors, strict=True):
        assert (output.datatype, tuple(output.shape)) == (datatype, array.shape)
        np.testing.assert_array_equal(np.array(values_of(output)), array.reshape(-1).tolist())


@pytest.mark.parametrize("datatype", ["FP16", "BF16"])
def test_halves_have_raw_contents_alone(datatype):
    half = np.array([1.5, -2.0], DTYPES[datatype])
    outputs = {"a": np.array([1], np.int32), "b": half}
    answer = Response.FromString(write_response(InferResponse("m", "1", "", outputs), False))
    assert list(answer.raw_output_contents) == [outputs["a"].tobytes(), half.tobytes()]
    request = infer(tensor_of("x", datatype, (2,), fp32_contents=[1.5, -2.0]))
    assert shows(refusal(request.SerializeToString()), "infer-input-needs-raw", name="x")


@pytest.mark.sampled
@settings(max_examples=200)
@given(arrays(), st.integers(-9, 9).filter(bool), st.randoms(use_true_random=False))
def test_raw_contents_of_another_length(tensor, more, chance):
    datatype, array = tensor
    request = infer()
    with_tensor(request, "x", datatype, array, raw=True)
    content = request.raw_input_contents[0]
    wrong = content + chance.randbytes(more) if more > 0 else content[:more]
    request.raw_input_contents[0] = wrong
    if len(wrong) != len(content):
        words = refusal(request.SerializeToString())
        assert words == Containing("'x'", datatype, f"{list(array.shape)}")
        assert str(len(wrong)) in words


@pytest.mark.sampled
@settings(max_examples=200)
@given(TYPED.filter(lambda each: each[1].size), st.integers(-3, 3))
def test_another_number_of_values(tensor, more):
    datatype, array = tensor
    flat = array.reshape(-1)
    wrong = flat[:more] if more < 0 else np.resize(flat, len(flat) + more)
    request = infer()
    with_tensor(request, "x", datatype, wrong, raw=False)
    request.inputs[0].shape[:] = array.shape
    if len(wrong) != len(flat):
        assert refusal(request.SerializeToString()).endswith(
            f"has {len(wrong)} values, expected {len(flat)}"
        )


@pytest.mark.parametrize("datatype", ["INT8", "INT16", "UINT8", "UINT16"])
@pytest.mark.parametrize("place", [0, 1, 2])
def test_whole_numbers_out_of_range(datatype, place):
    limits = np.iinfo(TYPES[datatype])
    field = "int_contents" if datatype[0] == "I" else "uint_contents"
    lowest = limits.min - 1 if datatype[0] == "I" else (1 << 32) - 1
    for wrong in (limits.max + 1, lowest):
        values = [limits.max, limits.min, 0]
        values[place] = wrong
        words = refusal(infer(tensor_of("x", datatype, (3,), **{field: values}))
                        .SerializeToString())  # fmt: skip
        assert shows(
            words, "infer-value-range", datatype=datatype, max=limits.max, min=limits.min, name="x"
        )


def test_booleans_are_0_or_1():
    request = infer(tensor_of("x", "BOOL", (3,)), raw=[b"\0\1\2"])
    assert shows(refusal(request.SerializeToString()), "infer-bool-invalid", name="x")


@pytest.mark.sampled
@settings(max_examples=300)
@given(DATATYPES, st.lists(SIZES, max_size=70), st.booleans(), st.binary(max_size=16))
def test_shapes_that_lie_take_no_memory(datatype, shape, is_raw, content):
    request = infer(tensor_of("x", datatype, shape, int_contents=[1]))
    if is_raw:
        request.inputs[0].ClearField("contents")
        request.raw_input_contents.append(content)
    sent = request.SerializeToString()
    tracemalloc.start()
    try:
        found = outcome(sent)
        assert tracemalloc.get_traced_memory()[1] < MIB
    finally:
        tracemalloc.stop()
    if isinstance(found, str):
        assert found.startswith("INVALID_ARGUMENT: ")
        codes = ("infer-raw-inputs-count", "strings-too-many")
        assert "input 'x'" in found or any(shows(found, each) for each in codes)
    else:
        assert found.inputs["x"].shape == tuple(shape)
        assert found.inputs["x"].size <= max(len(content), 1)


@pytest.mark.parametrize(
    "content",
    [
        block(5, b"") * 10_000,
        block(6, b"") * 10_000,
        block(7, b"") * 10_000,
        block(99, b"") * 10_000,
        b"\x28\x00" * 10_000,
        block(5, b"") * 4_000 + block(7, b"") * 4_000,
    ],
    ids=["inputs", "outputs", "raw contents", "unknown", "numbers", "inputs and raw contents"],
)
def test_thousands_of_empty_parts_are_refused_before_they_are_read(content):
    tracemalloc.start()
    try:
        with raises(GraphError, "fields-too-many", most=4096):
            split_request(content)
        assert tracemalloc.get_traced_memory()[1] < 4 * MIB
    finally:
        tracemalloc.stop()


def test_many_parameters_of_one_name_are_one():
    many = block(4, b"") * 4_000 + block(5, block(4, b"") * 100_000)
    assert not shows(refusal(block(1, b"m") + many), "name-too-long")


TWICE = says("infer-twice", what="input", name="x")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda one: one.inputs.append(one.inputs[0]), TWICE),
        (
            lambda one: one.raw_input_contents.append(b""),
            says("infer-raw-inputs-count", count=1, raw_count=2),
        ),
        (
            lambda one: one.inputs[0].contents.int_contents.append(1),
            says("infer-input-two-contents", name="x"),
        ),
        (
            lambda one: setattr(one.inputs[0], "datatype", "INT4"),
            says("infer-datatype-unknown", name="x", got="INT4"),
        ),
        (lambda one: setattr(one.inputs[0], "datatype", "x" * 1000), f"datatype '{'x' * 40}',"),
        (lambda one: setattr(one.inputs[0], "name", "n" * 257), says("name-too-long", most=256)),
        (lambda one: one.outputs.add(name="n" * 257), says("name-too-long", most=256)),
        (lambda one: setattr(one, "id", "n" * 257), says("name-too-long", most=256)),
        (
            lambda one: one.inputs[0].shape.append(-1),
            says("infer-shape-invalid", name="x", shape=[2, -1]),
        ),
        (
            lambda one: one.parameters["signature_name"].SetInParent(),
            says("infer-parameter-not-string", name="signature_name"),
        ),
        (
            lambda one: setattr(one.parameters["signature_name"], "int64_param", 1),
            says("infer-parameter-not-string", name="signature_name"),
        ),
    ],
)
def test_what_is_refused(change, words):
    request = infer(tensor_of("x", "INT8", (2,)), raw=[b"\1\2"])
    if words == TWICE:
        request.raw_input_contents.append(b"\1\2")
    change(request)
    said = refusal(request.SerializeToString())
    assert re.search(words, said)
    assert len(said) < 400


def test_parameters_of_others_are_ignored():
    request = infer(tensor_of("x", "INT8", (2,)), raw=[b"\1\2"])
    for name in ("priority", "timeout", "triton_any", "é"):
        request.parameters[name].uint64_param = 1 << 63
        request.inputs[0].parameters[name].double_param = 0.5
    for name, field, value in (
        ("sequence_id", "string_param", ""), ("sequence_id", "uint64_param", 0),
        ("sequence_start", "bool_param", False), ("sequence_end", "bool_param", False),
    ):  # fmt: skip
        setattr(request.parameters[name], field, value)
        request.parameters["signature_name"].string_param = "s"
        found = read(request.SerializeToString())
        assert (found.signature, found.inputs["x"].tolist()) == ("s", [1, 2])


@pytest.mark.parametrize(
    ("level", "name", "field", "value"),
    [
        ("request", "sequence_id", "uint64_param", 7),
        ("request", "sequence_id", "int64_param", -1),
        ("request", "sequence_id", "string_param", "a"),
        ("request", "sequence_start", "bool_param", True),
        ("request", "sequence_end", "bool_param", True),
        ("input", "shared_memory_region", "string_param", "a"),
        ("output", "shared_memory_region", "string_param", "a"),
        ("output", "classification", "string_param", "1"),
        ("output", "classification", "bool_param", True),
        ("output", "classification", "int64_param", -1),
        ("output", "classification", "uint64_param", 1 << 63),
    ],
)
def test_parameters_that_change_the_meaning_are_refused(level, name, field, value):
    request = infer(tensor_of("x", "INT8", (2,)), raw=[b"\1\2"])
    request.outputs.add(name="y")
    levels = {"request": request, "input": request.inputs[0], "output": request.outputs[0]}
    setattr(levels[level].parameters[name], field, value)
    said = refusal(request.SerializeToString())
    assert f"'{name}' is {json.dumps(value)}," in said


def test_the_number_of_classes_of_an_output():
    request = infer(tensor_of("x", "INT8", (2,)), raw=[b"\1\2"])
    for number, name in enumerate("abc"):
        output = request.outputs.add(name=name)
        output.parameters["classification"].int64_param = number
    found = read(request.SerializeToString())
    assert (found.outputs, found.classes) == (["a", "b", "c"], {"b": 1, "c": 2})


def sound(chance: random.Random) -> bytes:
    """Return a request that has all kinds of parts."""
    request, is_raw = infer(id="i", model_version="1"), chance.random() < 0.5
    request.parameters["signature_name"].string_param = "serving_default"
    for datatype in chance.sample(list(TYPES), 4):
        if is_raw or datatype not in ("FP16", "BF16"):
            dtype = DTYPES[datatype]
            items = [b"a", b"", b"bcd"] if dtype.kind == "O" else [0, 1, 1]
            with_tensor(request, datatype, datatype, np.array(items, dtype), is_raw)
    request.outputs.add(name="y").parameters["p"].bool_param = True
    return request.SerializeToString()


@pytest.mark.sampled
@pytest.mark.parametrize("seed", range(4))
def test_damaged_requests_are_refused_or_read_as_protobuf_reads_them(seed):
    chance, refused = random.Random(seed), 0
    for _ in range(1000):
        content = sound(chance)
        for _ in range(chance.randint(1, 3)):
            content = mutations.message(content, chance)
        if chance.random() < 0.2:
            content = content[: chance.randrange(len(content) + 1)]
        try:
            whole = Request.FromString(content)
        except Exception:
            whole = None
        try:
            head, raw = split_request(content)
            asked = Request.FromString(head)
        except GraphError:
            refused += 1
            continue
        except Exception:  # protobuf's own
            assert whole is None
            continue
        assert whole is not None
        assert list(map(bytes, raw)) == list(whole.raw_input_contents)
        whole.ClearField("raw_input_contents")
        assert asked == whole
        found = outcome(content)
        if isinstance(found, str):
            assert found.startswith("INVALID_ARGUMENT")
            refused += 1
        else:
            assert set(found.inputs) == {each.name for each in asked.inputs}
    assert 100 < refused < 1000


def test_raw_contents_are_views_of_the_request():
    big = np.ones((300, 300), np.float32)
    request = infer()
    with_tensor(request, "x", "FP32", big, raw=True)
    content = request.SerializeToString()
    found = read(content).inputs["x"]
    assert np.shares_memory(found, np.frombuffer(content, np.uint8))


@pytest.mark.parametrize("count", [0, 1, 5])
def test_strings_take_no_more_than_they_are(count):
    content = b"".join([b"\x04\0\0\0abcd"] * count)
    array = from_raw("x", "BYTES", (count,), memoryview(content))
    assert array.tolist() == [b"abcd"] * count
    for wrong in (b"\x05\0\0\0abcd", b"\xff\xff\xff\xffabcd", b"\x03\0\0\0abcd"):
        with raises(ServingError, "infer-strings-invalid", shape=[2], count=2):
            from_raw("x", "BYTES", (2,), memoryview(wrong + content))


def test_names_come_before_everything_else():
    for call in (from_raw, from_values):
        with raises(ServingError, "name-too-long", what=Containing("input")):
            call("n" * 300, "NONE", (-1,), memoryview(b""))


@pytest.mark.sampled
@pytest.mark.parametrize("is_raw", [True, False])
@pytest.mark.parametrize("inputs", [1, 3])
def test_more_strings_than_the_limit_are_refused_before_they_are_decoded(is_raw, inputs):
    """The limit counts all inputs of a request; a shape alone does not allocate anything."""
    count = MAX_STRINGS // inputs + 1
    contents = bytes(4 * count)
    names = [f"x{number}" for number in range(inputs)]
    empty = {} if is_raw else {"bytes_contents": [b""] * count}
    tensors = [tensor_of(name, "BYTES", (count, 1), **empty) for name in names]
    content = infer(*tensors, raw=[contents] * inputs if is_raw else ()).SerializeToString()
    tracemalloc.start()
    try:
        said = refusal(content)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert shows(said, "strings-too-many", count=inputs * count, most=MAX_STRINGS)
    assert peak < len(content) + 4 * count, "a list would have 8 bytes for each string"


def test_values_in_a_field_of_another_datatype_are_refused():
    for datatype, right in FIELDS.items():
        for wrong in sorted(set(FIELDS.values()) - {right}):
            value = [b"a"] if wrong == "bytes_contents" else [1]
            good = [b"a"] if right == "bytes_contents" else [1]
            for contents in ({wrong: value}, {right: good, wrong: value}):
                said = refusal(
                    infer(tensor_of("x", datatype, (1,), **contents)).SerializeToString()
                )
                assert shows(said, "infer-contents-field", name="x", expected=right), said
            read(infer(tensor_of("x", datatype, (1,), **{right: good})).SerializeToString())


@pytest.mark.slow
@pytest.mark.parametrize("field", ["uint64_contents", "int_contents", "bool_contents"])
def test_more_whole_numbers_than_raw_contents_should_hold_are_refused(field):
    request = Request(model_name="m")
    tensor = request.inputs.add(name="x", datatype="UINT64", shape=[1])
    getattr(tensor.contents, field).extend([1] * ((16 << 20) + 1))
    head = request.SerializeToString()
    with raises(ServingError, "infer-typed-contents-too-large", most=16):
        check_typed_contents(head)


@pytest.mark.parametrize(
    ("field", "values"),
    [("fp32_contents", [1.0] * (5 << 20)), ("fp64_contents", [1.0] * (3 << 20)),
     ("bytes_contents", [b"x" * (10 << 20), b"y" * (10 << 20)])],
)  # fmt: skip
def test_floats_and_long_strings_may_be_large(field, values):
    request = Request(model_name="m")
    getattr(request.inputs.add(name="x").contents, field).extend(values)
    check_typed_contents(request.SerializeToString())


def test_large_numbers_of_a_document_keep_their_last_digit():
    values = [2**64 - 1, 1, 2**63, 2**53 + 1]
    assert from_values("x", "UINT64", [4], values).tolist() == values
    for datatype, wrong in (("UINT64", [-1]), ("INT64", [2**63]), ("UINT8", [256])):
        with raises(ServingError, "infer-value-range"):
            from_values("x", datatype, [1], wrong)
