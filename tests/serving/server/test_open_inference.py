"""One table of what a server answers to the Open Inference Protocol, in each of its forms."""

import re

import grpc
import numpy as np
import pytest

from deploykit.serving.protocol.open_inference import TYPES
from deploykit.transforms.ir.tensors import numpy_type
from tests.serving.infer_callers import FORMS, Caller, array_of, ask, http_ask
from tests.support import assert_golden, says

HALF = {"x": ("FP32", [[2.0], [4.0]])}
PAIR = {"x": ("FP32", [[1.0, 2.0]])}
SWAPPED = {"signature_name": "swapped"}
STATUS = {"INVALID_ARGUMENT": 400, "NOT_FOUND": 404}
CODES = {status: code for code, status in STATUS.items()}


@pytest.fixture(params=FORMS)
def caller(request, inference):
    return Caller(inference.server, request.param)


def values(datatype: str, form: str):
    """Return two rows of a datatype that it can hardly hold."""
    dtype = numpy_type(TYPES[datatype])
    if datatype == "BYTES":
        bytes_ = form in ("raw", "typed", "binary")
        return [[b"", "größer\0".encode()], [b"x" * 300, b"\xff\0" if bytes_ else b'\\u0041"']]
    if datatype == "BOOL":
        return [[True, False], [False, True]]
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        return [[limits.min, limits.max], [0, 1]]
    large = float(np.array(3.3e38 if datatype in ("BF16", "FP32") else 6e4, dtype))
    return [[large, -0.0], [float("nan"), float("-inf")]]


def echoed(form: str) -> dict:
    datatypes = [each for each in TYPES if form != "typed" or each not in ("FP16", "BF16")]
    return {each.lower(): (each, values(each, form)) for each in datatypes}


def test_values_of_every_datatype(caller):
    given = echoed(caller.form)
    signature = {"signature_name": "typed"} if caller.form == "typed" else {}
    answer = caller.infer("echo", given, parameters=signature, id="größer 1")
    assert (answer.code, answer.message, answer.model) == ("OK", "", "echo")
    assert (answer.version, answer.id) == ("1", "größer 1")
    assert answer.outputs.keys() == {f"{name}_out" for name in given}
    for name, (datatype, value) in given.items():
        found, array = answer.outputs[f"{name}_out"]
        assert found == datatype
        expected = array_of(datatype, value)
        if datatype == "BYTES":
            assert array.tolist() == expected.tolist()
        else:
            kind = np.float32 if datatype == "BF16" else array.dtype
            np.testing.assert_array_equal(array.astype(kind), expected.astype(kind))


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("model", "inputs", "more", "expected"),
    [
        ("half_plus_two", HALF, {}, ("124", {"y": [[4.0], [5.0]]})),
        ("half_plus_two", HALF, {"version": "123"}, ("123", {"y": [[3.0], [4.0]]})),
        ("half_plus_two", HALF, {"version": "stable"}, ("123", {"y": [[3.0], [4.0]]})),
        ("half_plus_two", HALF, {"outputs": ["y"]}, ("124", {"y": [[4.0], [5.0]]})),
        ("half_plus_two", {"x": ("FP32", np.zeros((0, 1)))}, {}, ("124", {"y": np.zeros((0, 1))})),
        ("echo", PAIR, {"parameters": SWAPPED}, ("1", {"y": [[2.0, 1.0]]})),
        ("echo", PAIR, {"parameters": {**SWAPPED, "priority": "1", "timeout": "1", "é": ""}},
         ("1", {"y": [[2.0, 1.0]]})),
        ("echo", {"x": ("FP32", np.zeros((0, 2)))}, {"parameters": SWAPPED},
         ("1", {"y": np.zeros((0, 2))})),
        ("only", {"x": ("FP32", [1.5])}, {}, ("1", {"y": [1.5]})),
        ("several", {"x": ("FP32", [1.5])}, {"parameters": {"signature_name": "b"}},
         ("1", {"y": [1.5]})),
    ],
)  # fmt: skip
def test_what_is_answered(caller, model, inputs, more, expected):
    answer = caller.infer(model, inputs, id="7", **more)
    assert (answer.code, answer.message) == ("OK", "")
    version, outputs = expected
    assert (answer.model, answer.version, answer.id) == (model, version, "7")
    assert answer.outputs.keys() == outputs.keys()
    for name, value in outputs.items():
        datatype, array = answer.outputs[name]
        assert datatype == "FP32"
        assert array.shape == np.shape(value)
        assert array.tolist() == np.asarray(value).tolist()


LONG = "y" * 300
REFUSED = [
    ("nobody", HALF, {}), ("half_plus_two", HALF, {"version": "7"}),
    ("half_plus_two", HALF, {"version": "unknown"}),
    ("half_plus_two", HALF, {"version": str(1 << 63)}),
    ("half_plus_two", HALF, {"version": "9" * 200}), ("half_plus_two", {"x": ("INT32", [[1]])}, {}),
    ("half_plus_two", {"z": ("FP32", [[1]])}, {}), ("half_plus_two", {}, {}),
    ("half_plus_two", HALF, {"outputs": ["y", "q"]}),
    ("half_plus_two", HALF, {"outputs": [LONG]}),
    ("half_plus_two", HALF, {"id": LONG}), (LONG, HALF, {}),
    ("echo", {"x": ("FP32", [[1.0, 2.0, 3.0]])}, {"parameters": SWAPPED}),
    ("echo", PAIR, {"parameters": {"signature_name": "gone"}}),
    ("several", {"x": ("FP32", [1.5])}, {}),
]  # fmt: skip


@pytest.mark.golden("served/v2_refused")
def test_what_is_refused(inference):
    """In the same words in each form."""
    said = {form: [] for form in FORMS}
    for form, found in said.items():
        caller = Caller(inference.server, form)
        for model, inputs, more in REFUSED:
            answer = caller.infer(model, inputs, **more)
            code = answer.code if caller.is_grpc else CODES[answer.code]
            request = f"{model} {inputs} {more}".replace(LONG, "LONG")
            found.append(f"{request}\n{code}: {answer.message}\n")
        twice = caller.infer("half_plus_two", HALF, outputs=["y", "y"])
        assert ("y" in twice.message, twice.outputs) == (True, {})
    first, *others = said.values()
    for each in others:
        assert each == first
    assert_golden(*first)


FOUND = [("echo", "", True), ("echo", "1", True), ("half_plus_two", "stable", True),
         ("half_plus_two", "123", True), ("nobody", "", False), ("echo", "9", False),
         ("half_plus_two", "unknown", False)]  # fmt: skip


@pytest.mark.parametrize(("model", "version", "ready"), FOUND)
def test_model_ready(inference, model, version, ready):
    assert ask(inference.server, "ModelReady", name=model, version=version).ready == ready
    path = f"/v2/models/{model}{f'/versions/{version}' if version else ''}/ready"
    status, found, _ = http_ask(inference.server, "GET", path)
    assert status == (200 if ready else 404)
    assert found == {"name": model, "ready": True} if ready else "error" in found
    assert http_ask(inference.server, "HEAD", path)[:2] == (status, b"")


def test_model_metadata(inference):
    tensor = {"datatype": "FP32", "shape": [-1, 1]}
    for version in ("", "/versions/123", "/versions/stable"):
        path = f"/v2/models/half_plus_two{version}"
        status, found, _ = http_ask(inference.server, "GET", path)
        assert (status, sorted(found.pop("versions"))) == (200, ["123", "124"])
        assert found == {
            "name": "half_plus_two", "platform": "tensorflow_savedmodel",
            "inputs": [{"name": "x", **tensor}], "outputs": [{"name": "y", **tensor}],
        }  # fmt: skip
    found = ask(inference.server, "ModelMetadata", name="echo", version="1")
    assert (found.name, [*found.versions]) == ("echo", ["1"])
    assert found.platform == "tensorflow_savedmodel"
    expected = {name.lower(): (name, [-1, 2]) for name in TYPES}
    assert {t.name: (t.datatype, [*t.shape]) for t in found.inputs} == expected
    assert {t.name.removesuffix("_out") for t in found.outputs} == expected.keys()


@pytest.mark.parametrize(
    ("model", "version", "code"),
    [("nobody", "", "NOT_FOUND"), ("echo", "9", "NOT_FOUND"), ("several", "", "INVALID_ARGUMENT"),
     ("echo", "x", "INVALID_ARGUMENT"), ("n" * 300, "", "INVALID_ARGUMENT")],
)  # fmt: skip
def test_metadata_that_is_refused(inference, model, version, code):
    with pytest.raises(grpc.RpcError) as error:
        ask(inference.server, "ModelMetadata", name=model, version=version)
    path = f"/v2/models/{model}{f'/versions/{version}' if version else ''}"
    status, found, _ = http_ask(inference.server, "GET", path)
    assert (error.value.code().name, status) == (code, STATUS[code])
    assert found["error"] == error.value.details()


@pytest.mark.parametrize("method", ["ModelReady", "ModelMetadata", "ModelInfer"])
def test_no_model(inference, method):
    with pytest.raises(grpc.RpcError) as error:
        ask(inference.server, method)
    assert error.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert re.fullmatch(says("request-without-model"), error.value.details())
