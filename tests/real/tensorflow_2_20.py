"""An environment with TensorFlow 2.20, the version of TensorFlow Serving's newest release."""

import os
import pickle
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.loading import Feeds

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "benchmark-results" / "tensorflow-2.20"  # git ignores it
PYTHON = FOLDER / "bin" / "python"
READY = FOLDER / "ready"


def install() -> None:
    """Make the environment unless it is there; where that fails, skip what needs it."""
    if READY.exists():
        return
    FOLDER.parent.mkdir(exist_ok=True)
    subprocess.run([sys.executable, "-m", "venv", "--clear", str(FOLDER)], check=True)
    command = [str(PYTHON), "-m", "pip", "install", "--quiet", "tensorflow-cpu==2.20.*"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        said = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
        pytest.skip(f"TensorFlow 2.20 cannot be installed: {(said or ['pip said nothing'])[-1]}")
    READY.touch()


def answers(folder: Path, feeds: Mapping[str, Feeds], scratch: Path) -> dict[str, list[Feeds]]:
    """Return what each signature of a version answers in TensorFlow 2.20, by both loaders."""
    asked, target = scratch / "asked", scratch / "answers"
    asked.write_bytes(pickle.dumps(dict(feeds)))
    code = (
        "import tensorflow as tf; assert tf.__version__.startswith('2.20.'), tf.__version__\n"
        "from tests.loading import main; main()"
    )
    done = subprocess.run(
        [str(PYTHON), "-c", code, str(folder), str(asked), str(target)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, list[Feeds]] = pickle.loads(target.read_bytes())
    return found
