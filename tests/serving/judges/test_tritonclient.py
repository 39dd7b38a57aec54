"""tritonclient, NVIDIA's client of the Open Inference Protocol, in its four forms."""

import re
from pathlib import Path

import pytest

from tests.environments import answers_of, python_with
from tests.support import says

pytestmark = pytest.mark.sampled

ASK = Path(__file__).parent / "ask_triton.py"
CODES = {"INVALID_ARGUMENT": 400, "NOT_FOUND": 404}


@pytest.fixture(scope="module", params=["grpc", "http"])
def transport(request):
    return request.param


@pytest.fixture(scope="module", params=["sync", "async"])
def answers(request, transport, served):
    python = python_with("triton", "tritonclient[all]", "ml_dtypes")
    address = served.grpc if transport == "grpc" else served.rest
    return answers_of(python, ASK, transport, request.param, address)


def test_health_and_readiness(answers):
    asked = ("live", "ready", "model ready", "version ready")
    assert [answers[each] for each in asked] == [True] * 4
    for each in ("another model ready", "another version ready"):
        assert answers[each] is False


def test_metadata(answers):
    assert answers["server"]["name"] == "deploykit"
    tensor = {"datatype": "FP32", "shape": [-1, 1]}
    found = answers["model"]
    for side in ("inputs", "outputs"):  # over gRPC, int64 is a text in JSON
        found[side] = [{**each, "shape": list(map(int, each["shape"]))} for each in found[side]]
    assert found == {
        "name": "half_plus_two", "versions": ["123"], "platform": "tensorflow_savedmodel",
        "inputs": [{"name": "x", **tensor}], "outputs": [{"name": "y", **tensor}],
    }  # fmt: skip


def test_every_datatype(answers):
    assert len(answers["same"]) == 14
    assert all(answers["same"].values()), answers["same"]
    assert answers["id"] == "r 1"


def test_infer(answers, transport):
    assert answers["half"] == [[3.0], [4.0]]
    assert answers["swapped"] == [[2.0, 1.0]]
    assert answers["empty"] == [0, 1]
    if transport == "http":
        assert answers["json"] == [[2.0, 1.0]]
        assert answers["gzip"] == [[3.0], [4.0]]


@pytest.mark.parametrize(
    ("asked", "status", "words"),
    [
        (
            "wrong datatype",
            "INVALID_ARGUMENT",
            says("infer-input-datatype", name="x", got="INT32", expected="FP32"),
        ),
        ("wrong shape", "INVALID_ARGUMENT", r"'x' .*\[1, 7\]"),
        (
            "wrong name",
            "INVALID_ARGUMENT",
            says("infer-input-unexpected", name="z", expected=["'x' (FP32 [-1, 1])"]),
        ),
        (
            "wrong output",
            "INVALID_ARGUMENT",
            says("infer-output-unknown", name="q", expected=["'y'"]),
        ),
        ("wrong model", "NOT_FOUND", says("servable-missing", what="Latest(nobody)")),
        (
            "wrong version",
            "NOT_FOUND",
            says("servable-missing", what="Specific(half_plus_two, 7)"),
        ),
    ],
)
def test_errors(answers, transport, asked, status, words):
    expected = f"StatusCode.{status}" if transport == "grpc" else str(CODES[status])
    assert answers[asked]["status"] == expected
    assert re.search(words, answers[asked]["message"])
