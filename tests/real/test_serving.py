"""Real models exported, served and asked over gRPC and REST: the answers of the process itself."""

import base64
import json
import socket
import urllib.request
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import deploykit
from deploykit.serving.client.client import Client
from deploykit.serving.execution.engines.engine import Loading
from deploykit.serving.execution.engines.open_version import open_version
from deploykit.serving.protocol.signatures import DEFAULT
from deploykit.storage.arrays import load_data
from tests.serving.served import Served

pytestmark = pytest.mark.sampled

FASHION = Path(__file__).parents[2] / "models" / "fashion"
TEXTS = [b"import os\nprint(1)\n", b"#include <stdio.h>\nint main() { return 0; }"]


@pytest.fixture(scope="module")
def base(tmp_path_factory, efficientnet_lite0, guesslang, basic_pitch) -> Path:
    """Export all of them; return the folder of models."""
    folder = tmp_path_factory.mktemp("served")
    fashion = deploykit.freeze(FASHION / "fashion.keras")
    for name, model in (
        ("fashion", fashion),
        ("fashion_8", deploykit.quantize(fashion)),
        ("lite0", deploykit.optimize(deploykit.freeze(efficientnet_lite0 / "frozen.pb"))),
        ("guesslang", guesslang),
        ("basic_pitch", basic_pitch),
    ):
        deploykit.export(model, folder, name=name)
    return folder


@pytest.fixture(scope="module")
def served(base):
    server = Served(base, f"--rest_api_port={free_port()}")
    assert set(server.document["models"]) == {each.name for each in base.iterdir()}
    yield server
    assert server.end()[0] == 0


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def feeds_of(name: str) -> dict[str, Any]:
    random = np.random.default_rng(0)
    if name.startswith("fashion"):
        return {"images": load_data(FASHION / "test_1000.npz")["images"][:4]}
    if name == "lite0":
        return {"images": random.uniform(-1, 1, (2, 224, 224, 3)).astype(np.float32)}
    if name == "guesslang":
        return {"": np.array(TEXTS, object)}
    return {"": random.uniform(-1, 1, (1, 43844, 1)).astype(np.float32)}


def asked(base: Path, name: str, signature: str = DEFAULT) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return what a model is fed, and what it answers in this process."""
    servable = open_version(base / name / "1", name, 1, Loading())
    try:
        called = servable.signatures[signature]
        feeds = feeds_of(name)
        if "" in feeds:
            feeds = {next(iter(called.inputs)): feeds[""]}
        return feeds, servable.run(signature, feeds, list(called.outputs))
    finally:
        servable.close()


def in_json(array: Any) -> Any:
    if array.dtype.kind == "O":
        return [{"b64": base64.b64encode(text).decode()} for text in array]
    return array.tolist()


def post(server: Served, name: str, body: dict[str, Any]) -> Any:
    url = f"http://127.0.0.1:{server.document['rest_api_port']}/v1/models/{name}:predict"
    with urllib.request.urlopen(url, json.dumps(body).encode(), timeout=120) as answer:
        return json.loads(answer.read())


def assert_same(found: Any, wanted: Any) -> None:
    """Threads may add in another order, so numbers may differ in their last digits.

    Deep networks multiply these differences: 1.4e-6 was seen of outputs up to 1.
    """
    if wanted.dtype.kind == "O":
        texts = [t.decode() if isinstance(t, bytes) else t for t in np.ravel(found).tolist()]
        assert texts == [text.decode() for text in wanted.ravel().tolist()]
        return
    bar = 1e-5 * max(1.0, np.abs(wanted).max())
    np.testing.assert_allclose(np.asarray(found, wanted.dtype), wanted, rtol=0, atol=bar)


@pytest.mark.parametrize(
    ("name", "signature"),
    [
        ("fashion", DEFAULT),
        ("fashion_8", DEFAULT),
        ("lite0", DEFAULT),
        ("guesslang", DEFAULT),
        ("guesslang", "predict"),
        ("basic_pitch", DEFAULT),
    ],
)
def test_both_protocols_answer_what_the_process_answers(base, served, name, signature):
    feeds, wanted = asked(base, name, signature)
    with Client(served.address, timeout=120) as client:
        found = client.predict(name, feeds, signature=signature)
    assert set(found) == set(wanted)
    for alias, array in wanted.items():
        assert_same(found[alias], array)
    columns = {alias: in_json(array) for alias, array in feeds.items()}
    columns = post(served, name, {"inputs": columns, "signature_name": signature})
    outputs = columns["outputs"]
    outputs = outputs if isinstance(outputs, dict) else {next(iter(wanted)): outputs}
    for alias, array in wanted.items():
        assert_same(outputs[alias], array)
    (alias, array), *_ = feeds.items()
    body = {"instances": in_json(array), "signature_name": signature}
    rows = post(served, name, body)["predictions"]
    assert len(rows) == len(array)
    for place, row in enumerate(rows):
        row = row if isinstance(row, dict) else {next(iter(wanted)): row}
        for output, values in wanted.items():
            assert_same(row[output], np.asarray(values[place], values.dtype))


def test_the_answers_depend_on_what_is_asked(base, served):
    """So that a server that answers always the same would be seen."""
    feeds, wanted = asked(base, "fashion")
    with Client(served.address) as client:
        found = client.predict("fashion", {"images": feeds["images"][::-1].copy()})
    with pytest.raises(AssertionError):
        assert_same(found["probabilities"], wanted["probabilities"])
