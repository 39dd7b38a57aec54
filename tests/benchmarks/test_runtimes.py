"""What a runtime's process answers; a toy runtime, as the real ones are not installed for tests."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.benchmarks.runtimes import environment

ROOT = Path(__file__).parents[2]
TOY = """
import numpy as np
from tests.benchmarks.runtimes.child import Loaded, every, main
def load(model, batch, threads, in_flight):
    print(f"a library says that it loads {model}")
    call = lambda feeds: feeds["a"] * feeds["b"] * threads
    flight = (lambda feeds, seconds: [batch] * 5) if batch == 3 else None
    return Loaded([call] * in_flight, f"batch {batch}, threads {threads}", flight)
def quantize(model, samples, target, kind, keep_float):
    np.savez(target, kind=kind, last=every(samples)[-1]["a"], keep_float=keep_float)
def layers(model):
    return [model, "b"]
main(load, quantize, layers)
"""


@pytest.fixture
def samples(tmp_path):
    arrays = {"a": np.arange(12.0).reshape(4, 3), "b": np.arange(4.0)[:, None]}
    np.savez(tmp_path / "samples.npz", **arrays)
    return tmp_path / "samples.npz"


def ask(*arguments, lines=()):
    done = subprocess.run(
        [sys.executable, "-c", TOY, *map(str, arguments)],
        input="".join(json.dumps(line) + "\n" for line in lines),
        capture_output=True, text=True, check=False, cwd=ROOT,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.sampled
def test_answers_are_json_alone_and_outputs_are_those_of_each_sample(samples, tmp_path):
    lines = [["run", 0], ["outputs", str(tmp_path / "outputs.npy")], ["settings"]]
    (calls, taken), nothing, settings = ask("run", "a.model", samples, 2, 3, 1, lines=lines)
    assert len(calls) == 1
    assert 0 < calls[0] <= taken
    assert nothing is None
    assert settings == "batch 2, threads 3"
    arrays = np.load(samples)
    expected = 3 * arrays["a"] * arrays["b"]
    np.testing.assert_array_equal(np.load(tmp_path / "outputs.npy"), expected)


def test_calls_in_flight_have_a_caller_each_and_share_the_threads(samples):
    (calls, taken), settings = ask(
        "run", "a.model", samples, 1, 2, 2, lines=[["run", 0], ["settings"]]
    )
    assert len(calls) == 2
    assert max(calls) <= taken
    assert settings == "batch 1, threads 1"


@pytest.mark.sampled
def test_a_runtime_may_have_a_way_of_its_own_to_keep_calls_in_flight(samples):
    ((calls, _),) = ask("run", "a.model", samples, 3, 2, 2, lines=[["run", 0]])
    assert calls == [3] * 5
    ((calls, _),) = ask("run", "a.model", samples, 3, 2, 1, lines=[["run", 0]])
    assert len(calls) == 1


@pytest.mark.sampled
def test_quantize_gets_the_samples_one_by_one(samples, tmp_path):
    target = tmp_path / "small.npz"
    assert ask("quantize", "a.model", samples, target, "transformer", 9) == []
    small = np.load(target)
    assert small["kind"] == "transformer"
    assert small["keep_float"].tolist() == []
    np.testing.assert_array_equal(small["last"], [[9, 10, 11]])


@pytest.mark.sampled
def test_quantize_gets_the_first_samples_and_the_layers_that_stay_float(samples, tmp_path):
    target = tmp_path / "small.npz"
    assert ask("layers", "a.model") == [["a.model", "b"]]
    assert ask("quantize", "a.model", samples, target, "transformer", 2, "b", "c") == []
    small = np.load(target)
    assert small["keep_float"].tolist() == ["b", "c"]
    np.testing.assert_array_equal(small["last"], [[3, 4, 5]])


def test_all_have_the_malloc_of_the_c_library(monkeypatch):
    monkeypatch.setenv("LD_PRELOAD", "mine.so")
    before = dict(os.environ)
    with environment.keeping_memory():
        assert "LD_PRELOAD" not in os.environ
        assert os.environ["MALLOC_MMAP_MAX_"] == "0"
    assert dict(os.environ) == before
