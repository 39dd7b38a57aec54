"""What a server answers over REST and gRPC, whole: one server, a golden file for each protocol.

Programs of users read these answers, so a change here has to be told in the changelog.
"""

import http.client
import json
from contextlib import closing

import grpc
import numpy as np
import pytest
from google.protobuf import text_format

from deploykit.serving.protocol.codec import encode
from deploykit.serving.protocol.protos import (
    ClassificationRequest,
    GetModelMetadataRequest,
    GetModelStatusRequest,
    MultiInferenceRequest,
    PredictRequest,
    RegressionRequest,
)
from tests.serving import rest_models
from tests.serving.infer_callers import ask, request_of
from tests.serving.served import Served, free_port
from tests.support import assert_golden

V1, V2 = "/v1/models/model", "/v2/models/model"
X = {"x": [2.0, 4.0]}
REST = {
    "rest_predict": [
        (f"{V1}:predict", {"instances": [2.0, 4.0]}),
        (f"{V1}:predict", {"instances": [{"x": 2.0}]}),
        (f"{V1}:predict", {"inputs": [2.0, 4.0]}),
        (f"{V1}:predict", {"inputs": X}),
        (f"{V1}/versions/123:predict", {"inputs": X}),
        (f"{V1}:predict", {"signature_name": "both",
                           "instances": [{"number": 1, "word": {"b64": "YQ=="}}]}),
        (f"{V1}:predict", {"signature_name": "both", "inputs": {"number": [1, 2],
                                                                "word": ["a", "b"]}}),
        (f"{V1}:predict", {"signature_name": "divide", "inputs": [0.0, -0.5]}),
        (f"{V1}:predict", {"signature_name": "complex64", "inputs": 1}),
    ],
    "rest_examples": [
        (f"{V1}:classify", {"signature_name": "classify_x_to_y",
                            "examples": [{"x": 2.0}, {"x": 4.0}]}),
        (f"{V1}:classify", {"signature_name": "classify_names",
                            "examples": [{"x": 2.0, "name": "a"}]}),
        (f"{V1}:regress", {"signature_name": "regress_x_to_y", "context": {"x": 8.0},
                           "examples": [{}, {"x": 1.0, "more": 1}]}),
        (f"{V1}:classify", {"examples": [{"x": 2.0}]}),
    ],
    "rest_about_models": [
        (V1, None), (f"{V1}/versions/123", None), (f"{V1}/metadata", None),
        (f"{V1}/versions/7", None), ("/v1/models/none", None), ("/v1/models/none/metadata", None),
    ],
    "rest_errors": [
        (f"{V1}:predict", "{"), (f"{V1}:predict", {}), (f"{V1}:predict", {"inputs": ["a"]}),
        (f"{V1}:predict", {"signature_name": "none", "inputs": X}),
        (f"{V1}:predict", {"inputs": X, "instances": [1]}),
        (f"{V1}:predict", {"instances": [{"z": 2.0}]}),
        (f"{V1}/versions/7:predict", {"inputs": X}), ("/v1/models/none:predict", {"inputs": X}),
        (f"{V1}:none", {}), ("/none", None), (f"{V1}:predict", None),
    ],
    "rest_v2": [
        ("/v2/health/live", None), ("/v2/health/ready", None), ("/v2", None), (V2, None),
        (f"{V2}/ready", None), (f"{V2}/versions/123/ready", None),
        (f"{V2}/infer", {"id": "7", "inputs": [
            {"name": "x", "datatype": "FP32", "shape": [2], "data": [2.0, 4.0]}]}),
        (f"{V2}/infer", {"parameters": {"signature_name": "pairs"}, "inputs": [
            {"name": "number", "datatype": "INT32", "shape": [1], "data": [1]},
            {"name": "word", "datatype": "BYTES", "shape": [1], "data": ["a"]}]}),
        (f"{V2}/infer", {"inputs": [
            {"name": "x", "datatype": "INT32", "shape": [1], "data": [1]}]}),
        (f"{V2}/infer", {"inputs": []}), (f"{V2}/infer", "["), ("/v2/models/none", None),
        ("/v2/models/none/ready", None), (f"{V2}/versions/7/ready", None),
    ],
}  # fmt: skip


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    base = rest_models.write(tmp_path_factory.mktemp("model"))
    server = Served("--model_name=model", f"--model_base_path={base}",
                    f"--rest_api_port={free_port()}")  # fmt: skip
    yield server
    server.kill()


@pytest.mark.golden("served/{name}")
@pytest.mark.parametrize("name", REST)
def test_what_is_answered_over_rest(served, name):
    assert_golden(*(said_over_rest(served, *request) for request in REST[name]))


def said_over_rest(served, path, body):
    """Return the request, the status and the whole body; the maps of metadata have no order."""
    text = body if body is None or isinstance(body, str) else json.dumps(body)
    method = "GET" if body is None else "POST"
    port = served.document["rest_api_port"]
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=60)) as connection:
        connection.request(method, path, text)
        response = connection.getresponse()
        content = response.read().decode()
    if path.endswith("metadata") and response.status == 200:
        content = json.dumps(json.loads(content), indent=1, sort_keys=True)
    kind = response.getheader("content-type")
    return f"{method} {path} {text or ''}\n{response.status} {kind}\n{content}\n"


def spec(request, signature="", name="model", version=None):
    request.model_spec.name, request.model_spec.signature_name = name, signature
    if version is not None:
        request.model_spec.version.value = version
    return request


def predict(signature="", **given):
    request = PredictRequest()
    named = {key: given.pop(key) for key in ("name", "version") if key in given}
    for name, value in given.items():
        request.inputs[name].CopyFrom(encode(np.array(value)))
    return spec(request, signature, **named)


def examples(kind, signature, *values):
    request = spec(kind(), signature)
    for value in values:
        found = request.input.example_list.examples.add()
        found.features.feature["x"].float_list.value.append(value)
    return request


def of_model(kind, **named):
    request = spec(kind(), **named)
    if kind is GetModelMetadataRequest:
        request.metadata_field.append("signature_def")
    return request


def several():
    request = MultiInferenceRequest()
    for signature in ("classify_x_to_y", "regress_x_to_y"):
        task = request.tasks.add(method_name=f"tensorflow/serving/{signature.partition('_')[0]}")
        spec(task, signature)
    found = request.input.example_list.examples.add()
    found.features.feature["x"].float_list.value.append(2.0)
    return request


FLOATS = np.array([2.0, 4.0], np.float32)
GRPC = {
    "grpc_predict": [
        ("Predict", predict(x=FLOATS)),
        ("Predict", predict(x=FLOATS, version=123)),
        ("Predict", predict("both", number=np.array([1, 2], np.int32), word=[b"a", b"\xff"])),
        ("Predict", predict("complex64", x=np.complex64(1 + 2j))),
    ],
    "grpc_examples": [
        ("Classify", examples(ClassificationRequest, "classify_x_to_y", 2.0, 4.0)),
        ("Regress", examples(RegressionRequest, "regress_x_to_y", 2.0, 4.0)),
        ("MultiInference", several()),
    ],
    "grpc_about_models": [
        ("GetModelMetadata", of_model(GetModelMetadataRequest)),
        ("GetModelStatus", of_model(GetModelStatusRequest)),
        ("GetModelStatus", of_model(GetModelStatusRequest, version=7)),
        ("GetModelStatus", of_model(GetModelStatusRequest, name="none")),
    ],
    "grpc_errors": [
        ("Predict", predict()),
        ("Predict", predict(x=[b"a"])),
        ("Predict", predict("none", x=FLOATS)),
        ("Predict", predict(x=FLOATS, name="none")),
        ("Predict", predict(x=FLOATS, version=7)),
        ("Regress", examples(RegressionRequest, "classify_x_to_y", 2.0)),
        ("Classify", spec(ClassificationRequest(), "classify_x_to_y")),
    ],
}  # fmt: skip


@pytest.mark.golden("served/{name}")
@pytest.mark.parametrize("name", GRPC)
def test_what_is_answered_over_grpc(served, name):
    assert_golden(*(said_over_grpc(served, *request) for request in GRPC[name]))


def said_over_grpc(served, method, request):
    stub = served.models if method == "GetModelStatus" else served.predictions
    return f"{method}\n{proto(request)}{outcome(getattr(stub, method), request, timeout=30)}"


def outcome(call, *arguments, **named):
    try:
        return f"OK\n{proto(call(*arguments, **named))}"
    except grpc.RpcError as error:
        return f"{error.code().name}\n{error.details()}\n"


def proto(message):
    """Return a message as text; maps are in the order of their keys."""
    return text_format.MessageToString(message, as_utf8=True)


INFER = [
    ("ServerLive", {}), ("ServerReady", {}), ("ServerMetadata", {}),
    ("ModelReady", {"name": "model"}), ("ModelReady", {"name": "none"}),
    ("ModelMetadata", {"name": "model"}), ("ModelMetadata", {"name": "none"}),
]  # fmt: skip


@pytest.mark.golden("served/grpc_v2")
def test_what_is_answered_over_the_open_inference_protocol(served):
    said = [f"{method} {given}\n{outcome(ask, served, method, **given)}" for method, given in INFER]
    for raw in (True, False):
        request = request_of("model", {"x": ("FP32", FLOATS)}, (), raw, {})
        fields = {each.name: value for each, value in request.ListFields()}
        said.append(f"{proto(request)}{outcome(ask, served, 'ModelInfer', **fields)}")
    said.append(f"none\n{outcome(ask, served, 'ModelInfer', model_name='none')}")
    assert_golden(*said)
