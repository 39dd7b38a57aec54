"""ovmsclient, Intel's client with protobufs of its own, over gRPC and REST."""

from pathlib import Path

import pytest

from tests.environments import answers_of, python_with

pytestmark = pytest.mark.sampled

ASK = Path(__file__).parent / "ask_ovms.py"


@pytest.fixture(scope="module", params=["grpc", "http"])
def answers(request, served):
    python = python_with("ovmsclient", "ovmsclient==2023.1")
    address = served.grpc if request.param == "grpc" else served.rest
    return answers_of(python, ASK, request.param, address)


def test_status(answers):
    assert answers["status"] == {
        "123": {"state": "AVAILABLE", "error_code": 0, "error_message": ""}
    }


def test_metadata(answers):
    found = answers["metadata"]
    if "model_spec" in found:  # over REST it hands on what it gets
        assert found["model_spec"]["version"] == "123"
        signatures = found["metadata"]["signature_def"]["signature_def"]
        assert signatures["serving_default"]["inputs"]["x"]["dtype"] == "DT_FLOAT"
    else:
        tensor = {"shape": [-1, 1], "dtype": "DT_FLOAT"}
        assert found == {"model_version": 123, "inputs": {"x": tensor}, "outputs": {"y": tensor}}


def test_predict(answers):
    assert answers["predict"] == [[3.0], [4.0]]


def test_version_0_is_the_latest(answers):
    """The client sends version 0 where the caller names none."""
    assert answers["default version"] == answers["predict"]
    assert answers["default status"] == answers["status"]


def test_errors(answers):
    error, said = answers["another model"]
    assert error == "ModelNotFoundError"
    assert "Specific(m, 123)" in said
    error, said = answers["another alias"]
    assert error == "InvalidInputError"
