"""Install deploykit beside each TensorFlow, and run the main path: `make test-versions`."""

import argparse
import datetime
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
FASHION = ROOT / "models" / "fashion"
DATA = FASHION / "test_1000.npz"
FOLDER = ROOT / ".versions"
NO_WHEEL = "No matching distribution found for "  # as pip ends


@dataclass(frozen=True)
class Pair:
    """A TensorFlow and a Python."""

    tensorflow: str
    """As pip is asked for it."""
    python: str
    optional: bool = False
    """Whether a missing Python, or a missing wheel of TensorFlow for it, skips the pair."""

    @property
    def name(self) -> str:
        """A name for its folder."""
        return f"{self.tensorflow.replace('==', '-')}-py{self.python}"


PAIRS = (
    Pair("tensorflow-cpu==2.20.0", "3.11"),
    Pair("tensorflow==2.16.2", "3.12"),
    Pair("tensorflow==2.18.1", "3.11"),
    Pair("tensorflow==2.21.0", "3.13"),
    Pair("tensorflow==2.22.0rc0", "3.12"),
    Pair("tensorflow==2.21.0", "3.11"),
    Pair("tensorflow==2.22.0rc0", "3.14", optional=True),
)

PATH = (
    ("freeze", FASHION / "fashion.keras", "-o", "keras.pb"),
    ("freeze", FASHION / "tf1" / "model.ckpt", "--outputs", "probabilities", "-o", "tf1.pb"),
    ("optimize", "keras.pb", "-o", "optimized.pb"),
    ("transform", "--in_graph", "keras.pb", "--out_graph", "folded.pb",
     "--transforms", "fold_constants fold_batch_norms"),
    ("quantize", "optimized.pb", "-o", "weights.pb", "--mode", "weights"),
    ("verify", "keras.pb", "optimized.pb", "--data", DATA),
    ("quantize", "keras.pb", "-o", "int8.pb", "--calibration", DATA, "--allow-float"),
    ("benchmark", "keras.pb", "optimized.pb"),
    ("export", "optimized.pb", "served", "--name", "fashion"),
)  # fmt: skip


class Failed(Exception):
    """A step of the path ended otherwise than it has to."""


class Missing(Failed):
    """A pair cannot be tried: there is no such Python, or no wheel of TensorFlow for it."""


def interpreter(version: str) -> Path:
    """Return a Python X.Y that runs; a shim of pyenv may stand for one that is not chosen.

    Missing: there is none on PATH, and pyenv has none.
    """
    name = f"python{version}"
    folders = [Path(each) for each in os.environ.get("PATH", "").split(os.pathsep) if each]
    versions = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    folders += [each / "bin" for each in sorted(versions.glob(f"{version}.*"))]
    for folder in folders:
        path = folder / name
        if os.access(path, os.X_OK):
            done = subprocess.run([path, "-c", "import venv"], capture_output=True, check=False)
            if done.returncode == 0:
                return path
    raise Missing(f"no {name} runs that has the module venv")


class Environment:
    """A virtual environment with deploykit and one TensorFlow."""

    def __init__(self, pair: Pair, folder: Path) -> None:
        """Make it anew. Missing: there is no Python or no wheel. Failed: it cannot be made."""
        python = interpreter(pair.python)
        shutil.rmtree(folder, ignore_errors=True)
        self.python = folder / "bin" / "python"
        self.run(python, "-m", "venv", folder, cwd=ROOT)
        pip = (self.python, "-m", "pip", "install", "--quiet", pair.tensorflow)
        try:
            self.run(*pip, cwd=ROOT)
        except Failed as error:
            if NO_WHEEL + pair.tensorflow in str(error):
                raise Missing(f"no wheel of {pair.tensorflow} for Python {pair.python}") from None
            raise
        self.run(*pip, f"{ROOT}[report]", cwd=ROOT)

    def run(self, *command: object, cwd: Path) -> str:
        """Return what a command prints. Failed: it ends with another status than 0."""
        environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
        environment.pop("PYTHONPATH", None)
        done = subprocess.run(
            [*map(str, command)], cwd=cwd, env=environment, capture_output=True, text=True,
            check=False,
        )  # fmt: skip
        if done.returncode:
            said = " ".join((done.stdout + done.stderr).split())[-500:]
            raise Failed(f"{' '.join(map(str, command[1:]))}: status {done.returncode}: {said}")
        return done.stdout

    def deploykit(self, *arguments: object, cwd: Path) -> str:
        """Run a command of deploykit."""
        return self.run(self.python, "-m", "deploykit", *arguments, cwd=cwd)

    @contextmanager
    def serving(self, folder: Path) -> Iterator[str]:
        """Serve a model, and give the server's address."""
        command = [self.python, "-m", "deploykit", "serve", "--model_name=fashion", "--port=0",
                   f"--model_base_path={folder}", "--json", "--lame_duck_seconds=0"]  # fmt: skip
        server = subprocess.Popen(
            [*map(str, command)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        try:
            for line in server.stdout or ():
                if '"port":' in line:
                    yield f"localhost:{line.split(':')[1].strip(' ,' + chr(10))}"
                    return
            raise Failed("the server did not start")
        finally:
            server.kill()
            server.communicate()


def walk(pair: Pair) -> str:
    """Run the whole path with a pair. Failed: a step went wrong."""
    environment = Environment(pair, FOLDER / pair.name)
    with tempfile.TemporaryDirectory() as scratch:
        here = Path(scratch)
        for command in PATH:
            environment.deploykit(*command, cwd=here)
        code = f"import numpy as np; np.save('one.npy', np.load({str(DATA)!r})['images'][:1])"
        environment.run(environment.python, "-c", code, cwd=here)
        with environment.serving(here / "served" / "fashion") as address:
            said = environment.deploykit(
                "predict", address, "fashion", "--input", "one.npy", cwd=here
            )
        if "probabilities" not in said:
            raise Failed(f"predict: {said[-300:]}")
    return environment.deploykit("--version", cwd=ROOT).strip()


def outcome_of(pair: Pair) -> tuple[str, str]:
    """Return `passed`, `failed` or `skipped` for a pair, and a text with the reason."""
    try:
        return "passed", f"passed: {walk(pair)}"
    except Missing as error:
        kind = "skipped" if pair.optional else "failed"
        return kind, f"{kind if pair.optional else 'FAILED'}: {error}"
    except Failed as error:
        return "failed", f"FAILED: {error}"


def main() -> int:
    """Run the path with each pair, and print one line for each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("pairs", nargs="*", help="words of the pairs to run; default: all")
    words = parser.parse_args().pairs
    chosen = [each for each in PAIRS if not words or any(word in each.name for word in words)]
    counts = dict.fromkeys(("passed", "failed", "skipped"), 0)
    for pair in chosen:
        start = time.monotonic()
        kind, text = outcome_of(pair)
        counts[kind] += 1
        seconds = time.monotonic() - start
        print(f"{datetime.date.today()}  {pair.name:34} {seconds:5.0f} s  {text}", flush=True)
    print(", ".join(f"{count} {kind}" for kind, count in counts.items()))
    return int(counts["failed"] > 0)


if __name__ == "__main__":
    sys.exit(main())
