"""A version that takes photos on a real server: asked by the commands, by REST, by the stubs."""

import base64
import contextlib
import io
import json
import re
import urllib.error
import urllib.request
from pathlib import Path

import grpc
import numpy as np
import pytest

import deploykit as public
from deploykit.storage.image_files import png
from tests.deploykit.conftest import FASHION
from tests.serving.served import Served, free_port
from tests.support import Containing, assert_error, because, showing, shows

ROOT = Path(__file__).parents[3]
NAMES = [f"kind {n}" for n in range(10)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Ten photos as files, in a folder of their own."""
    folder = tmp_path_factory.mktemp("photos")
    rng = np.random.default_rng(0)
    for number in range(10):
        pixels = rng.integers(0, 256, (30 + number, 40, 3)).astype(np.uint8)
        (folder / f"{number}.png").write_bytes(png(pixels))
    return folder


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    base = tmp_path_factory.mktemp("base")
    public.export(FASHION / "fashion.keras", base, preprocess="0..1", labels=NAMES)
    served = Served(base, f"--rest_api_port={free_port()}")
    yield served
    served.end()


@pytest.mark.sampled
def test_predict_needs_no_flag(deploykit, server, folder):
    found = deploykit("predict", server.address, "fashion", folder / "0.png", "--json")
    assert found.status == 0, found.stderr
    (best,) = found.document["predictions"]
    assert len(best) == 5
    scores = np.array(found.document["values"]["probabilities"]["values"][0])
    assert [each["class"] for each in best] == np.argsort(-scores, kind="stable")[:5].tolist()
    assert [each["label"] for each in best] == [NAMES[each["class"]] for each in best]
    assert found.document["fed"] == {"bytes": Containing("0.png (")}
    files = sorted(folder.iterdir())[:3]
    several = deploykit("predict", server.address, "fashion", *files, "--top", "2", "--json")
    assert [len(each) for each in several.document["predictions"]] == [2, 2, 2]
    for alone, together in zip(best, several.document["predictions"][0], strict=False):
        assert together == alone | {"score": pytest.approx(alone["score"], rel=1e-5)}
    assert several.document["fed"] == {"bytes": Containing("3 ")}
    lines = deploykit("predict", server.address, "fashion", *files).stdout.splitlines()
    heads = [line for line in lines if line][::8]
    assert heads == [f"{file}:" for file in files]  # over titles, a rule and five classes
    assert "kind" in deploykit("predict", server.address, "fashion", files[0]).stdout
    mine = deploykit("predict", server.address, "fashion", "--input", f"bytes={files[0]}", "--json")
    assert mine.document["predictions"][0] == best


def test_predict_refuses_what_has_no_place(deploykit, server, folder, tmp_path):
    photo = folder / "0.png"
    for given, code in (
        ((photo, "--preprocess", "0..1"), "preprocess-decided"),
        ((FASHION / "README.md",), "not-an-image"),
        ((tmp_path / "none.jpg",), "input-file-missing"),
        ((), "input-not-given"),
    ):
        found = deploykit("predict", server.address, "fashion", *given)
        assert found.status != 0
        assert_error(found.error, code)
    (tmp_path / "cut.png").write_bytes(photo.read_bytes()[:99])
    found = deploykit("predict", server.address, "fashion", photo, photo, tmp_path / "cut.png")
    assert found.status != 0
    assert shows(found.stderr, "call-failed", reason=showing("photo-not-decoded"))


def test_status_says_what_is_sent(deploykit, server):
    found = deploykit("status", server.address, "fashion")
    files, pixels = showing("photos-as-files"), because("photos-as-pixels")
    assert shows(
        found.stdout, "input-takes", signature="serving_default", input="bytes", what=files
    )
    assert shows(found.stdout, "input-takes", input="pixels", what=pixels)
    document = deploykit("status", server.address, "fashion", "--json").document
    inputs = {name: each["inputs"] for name, each in document["signatures"].items()}
    assert inputs["serving_default"]["bytes"]["photos"] == files
    assert "photos" not in inputs["tensors"]["images"]


@pytest.mark.sampled
def test_folders_of_photos_are_sent_as_files(deploykit, server, folder):
    load = ("--seconds", "1", "--concurrency", "1", "--json")
    found = deploykit("load-test", server.address, "fashion", "--data", folder, *load)
    assert found.status == 0, found.stderr
    assert because("fed-as-files") in found.document["fed"]["bytes"]
    (load,) = found.document["loads"]
    assert set(load["statuses"]) == {"OK"}
    wrong = deploykit("load-test", server.address, "fashion", "--data", folder, "--preprocess=0..1")
    assert wrong.status != 0
    assert shows(wrong.stderr, "preprocess-step-decided")


def test_rest(server, folder):
    address = f"http://127.0.0.1:{server.document['rest_api_port']}/v1/models/fashion:predict"

    def asked(*contents):
        rows = [{"b64": base64.b64encode(each).decode()} for each in contents]
        return urllib.request.urlopen(address, json.dumps({"instances": rows}).encode())

    content = (folder / "0.png").read_bytes()
    (row,) = json.load(asked(content))["predictions"]
    assert row["classes"][0] == NAMES[int(np.argmax(row["probabilities"]))]
    with pytest.raises(urllib.error.HTTPError) as error:
        asked(content, b"hello")
    assert error.value.code == 400
    assert json.load(error.value)["error"] == showing("not-an-image-file", kinds=Containing("JPEG"))


def test_the_lines_of_the_documentation(server, folder, monkeypatch):
    text = (ROOT / "docs" / "serving.md").read_text()
    (code,) = re.findall(r"```python\n(import grpc\n.*?)```", text, re.DOTALL)
    assert len(code.splitlines()) <= 13
    code = code.replace("127.0.0.1:8500", server.address)
    (folder / "boot.png").write_bytes((folder / "1.png").read_bytes())
    monkeypatch.chdir(folder)
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        exec(compile(code, "serving.md", "exec"), {})
    assert "b'kind " in said.getvalue()
    (folder / "boot.png").write_bytes(b"hello")
    with pytest.raises(grpc.RpcError, match=r"bytes\[0\]"):
        exec(compile(code, "serving.md", "exec"), {})
    (folder / "boot.png").unlink()
