"""What commands say with --json on the Fashion checkpoint, but for what time and machine decide.

Programs of users read these documents, so a change here has to be told in the changelog.
"""

import json
import re

import numpy as np
import pytest

from tests.deploykit.benchmarking.made_up_results import measurement, result
from tests.deploykit.conftest import FASHION, Outcome, command_line
from tests.deploykit.records.conftest import png
from tests.serving.served import Served
from tests.support import assert_golden

CHECKPOINT, SAMPLES = FASHION / "tf1" / "model.ckpt", FASHION / "test_1000.npz"
MEASURED = ("seconds", "per_second", "version")  # ends of keys
FEW = 4  # elements of a list that are shown
SMALL = 1e-3  # of smaller numbers a rounding decides
FEW_SAMPLES = 100
EXACT = 100  # decibels, beyond which rounding decides
SHA256 = re.compile("[0-9a-f]{64}")
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
    "sensitivity": ("sensitivity", "{}/frozen.pb", "--calibration", "{}/few.npz", "--isa", "avx2"),
    "placement": ("placement", "{}/optimized.pb", "--batch", 1),
    "accuracy": ("accuracy", "{0}/frozen.pb", "{0}/optimized.pb", "--data", SAMPLES),
    "export": ("export", "{}/frozen.pb", "{}/served", "--warmup", SAMPLES),
    "label": ("label", "{}/photo.png", "--model", "{}/optimized.pb", "--input_std", 255,
              "--labels", "{}/labels.txt"),
    "infer": ("infer", "{}/optimized.pb", "{}/few.npz", "{}/out", "--processes", 1),
    "records_inspect": ("records", "inspect", "{}/records"),
    "records_verify": ("records", "verify", "{}/records"),
    "input_write": ("input", "write", "{}/records", "-o", "{}/pipeline.py"),
    "compare": ("compare", "{0}/a.json", "{0}/b.json"),
    "report": ("report", "{}/a.json", "-o", "{}/page.html"),
    "ship": ("ship", CHECKPOINT, "-o", "{}/ship", "--dry-run"),
}  # fmt: skip
SERVED = {
    "predict": ("predict", "{1}", "fashion", "--input", "{0}/two.npy"),
    "status": ("status", "{1}", "fashion"),
    "status_of_all": ("status", "{1}"),
    "load_test": (
        "load-test",
        "{1}",
        "fashion",
        "--data",
        "{0}/two.npz",
        "--concurrency",
        2,
        "--seconds",
        0.3,
    ),
}
MEASURING = {
    "benchmark": ("benchmark", "{}/optimized.pb", "--batch", 1, "--runs", 20),
    "input_benchmark": ("benchmark", "{}/optimized.pb", "--data", "{}/records", "--batch", 10,
                        "--seconds", 0.3, "--input", "tfdata"),
}  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Return a folder with the frozen checkpoint and its optimized form, and their documents."""
    path = tmp_path_factory.mktemp("documents")
    two_results(path)
    with np.load(SAMPLES) as samples:
        few = {name: samples[name][:FEW_SAMPLES] for name in samples}
        np.savez(path / "few.npz", **few)
        np.savez(path / "two.npz", images=few["images"][:2])
        np.save(path / "two.npy", few["images"][:2])
    (path / "labels.txt").write_text("".join(f"class {n}\n" for n in range(10)))
    (path / "photo.png").write_bytes(png(size=28, channels=1))
    made = {
        "freeze": ("freeze", CHECKPOINT, "-o", path / "frozen.pb"),
        "optimize": ("optimize", path / "frozen.pb", "-o", path / "optimized.pb"),
        "records_convert": ("records", "convert", path / "few.npz", path / "records"),
    }
    return path, {name: command_line(*line, "--json") for name, line in made.items()}


@pytest.mark.golden("json/{name}")
@pytest.mark.parametrize("name", ["freeze", "optimize", "records_convert"])
def test_the_document_of_a_graph_that_is_made(folder, name):
    path, found = folder
    assert_golden(shown(found[name], path))


@pytest.mark.golden("json/{name}")
@pytest.mark.parametrize("name", COMMANDS)
def test_the_document_of_a_command(deploykit, folder, name, monkeypatch):
    path, _ = folder
    if name == "placement":  # on some CPUs TensorFlow uses oneDNN's kernels only if asked to
        monkeypatch.setenv("TF_ENABLE_ONEDNN_OPTS", "1")
    line = [str(word).format(path) for word in COMMANDS[name]]
    text = shown(deploykit(*line, "--json"), path)
    if name in ("input_write", "report", "calibrate"):  # what they write holds paths, or rounding
        text = re.sub(r'"bytes_out": \d+', '"bytes_out": "int"', text)
    assert_golden(text)


@pytest.mark.golden("json/{name}")
@pytest.mark.parametrize("name", MEASURING)
def test_the_keys_and_types_of_a_command_that_measures(deploykit, folder, name, monkeypatch):
    # Whether there is a warm-up at all is otherwise up to the clock.
    monkeypatch.setattr(
        "deploykit.benchmarking.worker_sessions.steady_from", lambda calls: len(calls) // 2
    )
    path, _ = folder
    line = [str(word).format(path) for word in MEASURING[name]]
    assert_golden(shown(deploykit(*line, "--json"), path, kinds))


@pytest.fixture(scope="module")
def server(tmp_path_factory, folder):
    path = folder[0]
    assert command_line("export", path / "optimized.pb", path / "models").status == 0
    started = Served("--model_name=fashion", f"--model_base_path={path / 'models' / 'optimized'}")
    yield started
    started.kill()


@pytest.mark.golden("json/{name}")
@pytest.mark.parametrize("name", SERVED)
def test_the_document_of_a_client(deploykit, folder, server, name):
    path, _ = folder
    line = [str(word).format(path, server.address) for word in SERVED[name]]
    found = deploykit(*line, "--json")
    text = shown(found, path, kinds if name == "load_test" else steady)
    assert_golden(text.replace(server.address, "ADDRESS"))


@pytest.mark.golden("json/serve")
def test_the_document_of_a_server(folder, server):
    document = server.document | {"port": 1, "pid": 2, "seconds": 3.0}
    assert_golden(shown(Outcome(0, json.dumps(document), ""), folder[0]))


def steady(key, value):
    """Return a value with numbers that are rounded, and with the first elements of long lists."""
    if isinstance(value, dict):
        by_rounding = "disagreement" in value  # of models that agree
        return {n: (kinds if by_rounding else steady)(n, each) for n, each in value.items()}
    if isinstance(value, list):
        few = [steady(key, each) for each in value[:FEW]]
        return few + ([f"and {len(value) - FEW} more"] if len(value) > FEW else [])
    if key.endswith(MEASURED) and not isinstance(value, int):
        return type(value).__name__
    if isinstance(value, str) and SHA256.fullmatch(value):
        return "SHA-256"
    if key == "sqnr_db" and isinstance(value, float) and value > EXACT:
        return f"above {EXACT}"
    if isinstance(value, float):
        return float(f"{value:.2g}") if abs(value) >= SMALL or not value else "small"
    return value


def shown(found, path, reduced=steady):
    """Return a document as text, without what time, machine and folder decide."""
    assert found.stdout, found.stderr
    document = reduced("", json.loads(found.stdout))
    text = json.dumps(document, indent=1, sort_keys=True) + "\n"
    return f"exit status {found.status}\n" + text.replace(str(path), "FOLDER").replace(
        str(FASHION), "FASHION"
    )


def kinds(key, value):
    """Return a value with the kinds of what was measured in its place."""
    if isinstance(value, dict):
        return {name: kinds(name, each) for name, each in value.items()}
    if isinstance(value, list):
        found = [kinds(key, each) for each in value]
        return [each for n, each in enumerate(found) if each not in found[:n]][:FEW]
    if isinstance(value, float) or value is None:
        return "float or null"
    return type(value).__name__


def two_results(path):
    """Write two results of benchmarks, of which the second is twice as fast."""
    for name, p50 in {"a": 6.0, "b": 3.0}.items():
        found = result(measurement("model", p50, seed=ord(name)))
        (path / f"{name}.json").write_text(json.dumps(found.document()))


def test_what_is_steady():
    document = {"run_seconds": 1.5, "sqnr_db": 25.312, "error": 1e-9, "list": list(range(6))}
    assert steady("", document) == {
        "run_seconds": "float", "sqnr_db": 25.0, "error": "small",
        "list": [0, 1, 2, 3, "and 2 more"],
    }  # fmt: skip
