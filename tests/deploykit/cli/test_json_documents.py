"""What commands say with --json on the Fashion checkpoint, but for what time and machine decide.

Programs of users read these documents, so a change here has to be told in the changelog.
"""

import json

import pytest

from tests.deploykit.conftest import FASHION, command_line
from tests.support import assert_golden

CHECKPOINT, SAMPLES = FASHION / "tf1" / "model.ckpt", FASHION / "test_1000.npz"
MEASURED = ("seconds", "per_second", "version")  # ends of keys
FEW = 4  # elements of a list that are shown
SMALL = 1e-3  # of smaller numbers a rounding decides
COMMANDS = {
    "check": ("check", "{}/frozen.pb"),
    "inspect": ("inspect", "{}/frozen.pb"),
    "diff": ("diff", "{0}/frozen.pb", "{0}/optimized.pb"),
    "transforms": ("transforms", "fold_batch_norms"),
    "transform": ("transform", "--in_graph={}/frozen.pb", "--out_graph={}/transformed.pb",
                  "--transforms=fold_constants fold_batch_norms", "--verify"),
    "verify": ("verify", "{0}/frozen.pb", "{0}/optimized.pb"),
    "quantize": ("quantize", "{}/frozen.pb", "-o", "{}/weights.pb"),
    "calibrate": ("calibrate", "{}/frozen.pb", "--data", SAMPLES, "-o", "{}/ranges.json"),
    "accuracy": ("accuracy", "{0}/frozen.pb", "{0}/optimized.pb", "--data", SAMPLES),
    "export": ("export", "{}/frozen.pb", "{}/served", "--warmup", SAMPLES),
}  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Return a folder with the frozen checkpoint and its optimized form, and their documents."""
    path = tmp_path_factory.mktemp("documents")
    made = {
        "freeze": ("freeze", CHECKPOINT, "-o", path / "frozen.pb", "--json"),
        "optimize": ("optimize", path / "frozen.pb", "-o", path / "optimized.pb", "--json"),
    }
    return path, {name: command_line(*line) for name, line in made.items()}


@pytest.mark.golden("json/{name}")
@pytest.mark.parametrize("name", ["freeze", "optimize"])
def test_the_document_of_a_graph_that_is_made(folder, name):
    path, found = folder
    assert_golden(shown(found[name], path))


@pytest.mark.golden("json/{name}")
@pytest.mark.parametrize("name", COMMANDS)
def test_the_document_of_a_command(deploykit, folder, name):
    path, _ = folder
    line = [str(word).format(path) for word in COMMANDS[name]]
    assert_golden(shown(deploykit(*line, "--json"), path))


def shown(found, path):
    """Return a document as text, without what time, machine and folder decide."""
    assert found.stdout, found.stderr
    text = json.dumps(steady("", json.loads(found.stdout)), indent=1) + "\n"
    return f"exit status {found.status}\n" + text.replace(str(path), "FOLDER").replace(
        str(FASHION), "FASHION"
    )


def steady(key, value):
    """Return a value with numbers that are rounded, and with the first elements of long lists."""
    if isinstance(value, dict):
        return {name: steady(name, each) for name, each in value.items()}
    if isinstance(value, list):
        few = [steady(key, each) for each in value[:FEW]]
        return few + ([f"and {len(value) - FEW} more"] if len(value) > FEW else [])
    if key.endswith(MEASURED) and not isinstance(value, int):
        return type(value).__name__
    if isinstance(value, float):
        return float(f"{value:.2g}") if abs(value) >= SMALL or not value else "small"
    return value


def test_what_is_steady():
    document = {"run_seconds": 1.5, "sqnr_db": 25.312, "error": 1e-9, "list": list(range(6))}
    assert steady("", document) == {
        "run_seconds": "float", "sqnr_db": 25.0, "error": "small",
        "list": [0, 1, 2, 3, "and 2 more"],
    }  # fmt: skip
