"""An environment with TensorFlow 2.20, the version of TensorFlow Serving's newest release."""

import os
import pickle
import subprocess
from collections.abc import Mapping
from pathlib import Path

from tests.environments import python_with
from tests.loading import Feeds

ROOT = Path(__file__).parents[2]


def install() -> Path:
    """Return its interpreter; where it cannot be installed, skip what needs it."""
    return python_with("tensorflow-2.20", "tensorflow-cpu==2.20.*")


def answers(folder: Path, feeds: Mapping[str, Feeds], scratch: Path) -> dict[str, list[Feeds]]:
    """Return what each signature of a version answers in TensorFlow 2.20, by both loaders."""
    asked, target = scratch / "asked", scratch / "answers"
    asked.write_bytes(pickle.dumps(dict(feeds)))
    code = (
        "import tensorflow as tf; assert tf.__version__.startswith('2.20.'), tf.__version__\n"
        "from tests.loading import main; main()"
    )
    done = subprocess.run(
        [str(install()), "-c", code, str(folder), str(asked), str(target)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, list[Feeds]] = pickle.loads(target.read_bytes())
    return found
