"""@grpc/grpc-js, gRPC written in JavaScript, with a descriptor set as its only source."""

import base64
import json
import os
import subprocess
from pathlib import Path

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorSet

from deploykit.serving.protocol.protos import MODEL_SERVICE, PREDICTION_SERVICE, SignatureDefMap
from deploykit.transforms.ir.protos import private_pool
from tests.environments import node_with
from tests.support import shows

pytestmark = pytest.mark.sampled

ASK = Path(__file__).parent / "ask.js"
SPEC = {"name": "half_plus_two"}


def descriptor_set() -> bytes:
    """Return the files of both services and all that they import, each after what it imports."""
    pool = private_pool()
    services = (PREDICTION_SERVICE, MODEL_SERVICE)
    found, waiting = {}, [pool.FindServiceByName(name).file for name in services]
    while waiting:
        file = waiting[-1]
        missing = [each for each in file.dependencies if each.name not in found]
        if missing:
            waiting += missing
        else:
            found[waiting.pop().name] = file
    files = FileDescriptorSet()
    for file in found.values():
        file.CopyToProto(files.file.add())
    return files.SerializeToString()


@pytest.fixture(scope="module")
def ask(served, tmp_path_factory):
    """Return what asks a method, several requests at once."""
    folder = node_with("grpc-js", "@grpc/grpc-js@1.14.0", "@grpc/proto-loader@0.8.0")
    descriptors = tmp_path_factory.mktemp("descriptors") / "serving.bin"
    descriptors.write_bytes(descriptor_set())

    def call(service: str, method: str, *requests: object) -> list[dict]:
        calls = [
            {"address": served.grpc, "service": service, "method": method, "request": each}
            for each in requests
        ]
        done = subprocess.run(
            ["node", str(ASK), str(descriptors)],
            input=json.dumps(calls),
            env={**os.environ, "NODE_PATH": str(folder / "node_modules")},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return call


def predict(x: float = 2.0, **spec: object) -> dict:
    """Return a request; a map of a descriptor set is a list of entries here."""
    tensor = {"dtype": "DT_FLOAT", "tensor_shape": {"dim": [{"size": 1}, {"size": 1}]},
              "float_val": [x]}  # fmt: skip
    return {"model_spec": {**SPEC, **spec}, "inputs": [{"key": "x", "value": tensor}]}


def test_predict(ask):
    answers = ask("PredictionService", "Predict", *map(predict, range(20)))
    for x, found in enumerate(answers):
        [entry] = found["outputs"]
        assert entry["key"] == "y"
        assert entry["value"]["float_val"] == [x / 2 + 2]
        resolved = {"version": {"value": "123"}, "signature_name": "serving_default"}
        assert found["model_spec"] == {**SPEC, **resolved}


def test_metadata(ask):
    request = {"model_spec": SPEC, "metadata_field": ["signature_def"]}
    [found] = ask("PredictionService", "GetModelMetadata", request)
    [entry] = found["metadata"]
    assert entry["value"]["type_url"].endswith("/tensorflow.serving.SignatureDefMap")
    signatures = SignatureDefMap.FromString(base64.b64decode(entry["value"]["value"]))
    assert set(signatures.signature_def) == {"serving_default", "classify_x_to_y", "regress_x_to_y"}


def test_status(ask):
    [found] = ask("ModelService", "GetModelStatus", {"model_spec": SPEC})
    [version] = found["model_version_status"]
    assert (version["version"], version["state"]) == ("123", "AVAILABLE")


def test_errors(ask):
    wrong = [predict(name="m"), predict(version={"value": 7}), {"model_spec": SPEC}]
    found = ask("PredictionService", "Predict", *wrong)
    assert [each["code"] for each in found[:2]] == ["NOT_FOUND", "NOT_FOUND"]
    assert shows(found[0]["details"], "servable-missing", what="Latest(m)")
    assert shows(found[1]["details"], "servable-missing", what="Specific(half_plus_two, 7)")
    assert found[2]["code"] == "INVALID_ARGUMENT"
    assert shows(found[2]["details"], "signature-inputs-differ", count=0, expected_count=1)
