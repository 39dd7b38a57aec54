"""The SDK of KServe: its clients of the Open Inference Protocol over gRPC and HTTP."""

from pathlib import Path

import pytest

from tests.environments import answers_of, python_with
from tests.support import shows

pytestmark = pytest.mark.sampled

ASK = Path(__file__).parent / "ask_kserve.py"


@pytest.fixture(scope="module", params=["grpc", "http"])
def answers(request, served):
    python = python_with("kserve", "kserve")
    address = served.grpc if request.param == "grpc" else served.rest
    return answers_of(python, ASK, request.param, address)


def test_health_and_readiness(answers):
    assert (answers["live"], answers["ready"]) == (True, True)
    assert answers["models"] == [True, True, False]


@pytest.mark.parametrize("binary", [True, False])
def test_infer(answers, binary):
    assert len(answers[f"same {binary}"]) == 12
    assert all(answers[f"same {binary}"].values()), answers[f"same {binary}"]
    assert answers[f"id {binary}"] == "r 1"
    for version in ("", "123"):
        assert answers[f"half {version} {binary}"] == [[3.0], [4.0]]
    assert answers[f"swapped {binary}"] == [[2.0, 1.0]]


def test_errors(answers):
    assert "Latest(nobody)" in answers["wrong model"]
    assert "Specific(half_plus_two, 7)" in answers["wrong version"]
    expected = ["'x' (FP32 [-1, 1])"]
    assert shows(answers["wrong input"], "infer-input-unexpected", name="z", expected=expected)
