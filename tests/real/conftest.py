"""Real models, fetched by the scripts in models/; a fetch that fails skips the tests that need it.

The scripts leave what they fetch in folders that git ignores, so the next run finds it there.
"""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from deploykit.storage.arrays import load_data

MODELS = Path(__file__).parents[2] / "models"


def made_by(script: str) -> Path:
    """Run a script of models/, and return the path that it prints last."""
    command = [sys.executable, str(MODELS / script)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        said = (done.stderr.strip() or "it said nothing").splitlines()[-1]
        pytest.skip(f"models/{script} failed: {said}")
    return Path(done.stdout.splitlines()[-1])


@pytest.fixture(scope="session")
def efficientnet_lite0() -> Path:
    """Return the folder with the checkpoint, the frozen graph and the SavedModel."""
    return made_by("efficientnet_lite0/build.py")


@pytest.fixture(scope="session")
def basic_pitch() -> Path:
    """Return the SavedModel's folder."""
    return made_by("basic_pitch/fetch.py")


@pytest.fixture(scope="session")
def guesslang() -> Path:
    """Return the SavedModel's folder."""
    return made_by("guesslang/fetch.py")


@pytest.fixture(scope="session")
def photos() -> dict[str, np.ndarray]:
    """Return 20 labelled photos as EfficientNet-Lite0 wants them."""
    return load_data(made_by("photos/fetch.py"))


@pytest.fixture(autouse=True)
def own_settings(monkeypatch):
    """Forget what the user has set: it would win over what a test sets."""
    monkeypatch.delenv("TF_ENABLE_ONEDNN_OPTS", raising=False)
