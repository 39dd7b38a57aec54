"""What a runtime's process answers; a toy runtime, as the real ones are not installed for tests."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]
TOY = """
import numpy as np
from tests.benchmarks.runtimes.child import main
def load(model, batch, threads):
    print(f"a library says that it loads {model}")
    return lambda images: images * threads
main(load, lambda model, images, target: np.save(target, images + 1))
"""


@pytest.fixture
def pictures(tmp_path):
    np.savez(tmp_path / "pictures.npz", images=np.arange(12.0).reshape(4, 3))
    return tmp_path / "pictures.npz"


def ask(*arguments, lines=()):
    done = subprocess.run(
        [sys.executable, "-c", TOY, *map(str, arguments)],
        input="".join(json.dumps(line) + "\n" for line in lines),
        capture_output=True, text=True, check=False, cwd=ROOT,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_answers_are_json_alone_and_logits_are_those_of_each_picture(pictures, tmp_path):
    lines = [["run", 0], ["logits", str(tmp_path / "logits.npy")]]
    (calls, taken), nothing = ask("run", "a.model", pictures, 2, 3, lines=lines)
    assert len(calls) == 1
    assert 0 < calls[0] <= taken
    assert nothing is None
    expected = 3 * np.load(pictures)["images"]
    np.testing.assert_array_equal(np.load(tmp_path / "logits.npy"), expected)


def test_quantize_gets_the_pictures(pictures, tmp_path):
    target = tmp_path / "small.npy"
    assert ask("quantize", "a.model", pictures, target) == []
    np.testing.assert_array_equal(np.load(target), np.load(pictures)["images"] + 1)
