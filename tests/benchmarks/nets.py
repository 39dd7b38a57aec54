"""The networks that benchmarks take, made once and kept in benchmark-results/models/."""

import subprocess
import sys
import tempfile
from pathlib import Path

from tests.benchmarks.figures import RESULTS
from tests.benchmarks.measuring import deploykit, run

MODELS = Path(__file__).parents[2] / "models"


def frozen_keras_net(name: str) -> Path:
    """Return the frozen graph of a network of keras.applications, with random batch norms."""
    frozen = RESULTS / "models" / f"{name}.frozen.pb"
    if not frozen.exists():
        frozen.parent.mkdir(parents=True, exist_ok=True)
        keras_file = frozen.with_name(f"{name}.keras")
        run([sys.executable, "-m", "tests.real.keras_nets", name, str(keras_file)])
        run(deploykit("freeze", str(keras_file), "-o", str(frozen)))
        keras_file.unlink()
    return frozen


def frozen_encoder(form: str = "keras") -> Path:
    """Return the frozen graph of a MiniLM-like text encoder, in a form of tests.real.encoder."""
    frozen = RESULTS / "models" / f"encoder.{form}.frozen.pb"
    if not frozen.exists():
        frozen.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory() as folder:
            run([sys.executable, "-m", "tests.real.encoder", form, folder])
            run(deploykit("freeze", folder, "-o", str(frozen)))
    return frozen


def made_by(script: str) -> Path:
    """Run a script of models/, and return the path that it prints last. SystemExit: it fails."""
    done = subprocess.run(
        [sys.executable, str(MODELS / script)], stdout=subprocess.PIPE, text=True, check=False
    )
    if done.returncode:
        sys.exit(f"models/{script} failed")
    return Path(done.stdout.splitlines()[-1])
