"""predict, status and load-test as a user calls them, against a real gRPC server."""

import json
import struct
import zlib

import numpy as np
import pytest

from tests.deploykit.conftest import refusals
from tests.serving.official import Official, pixels
from tests.support import Containing, assert_golden, because, showing, shows


def sent(official, alias="x"):
    from deploykit.serving.protocol.codec import decode

    return decode(official.requests[-1].inputs[alias], alias)


def test_predict_with_values_and_files(deploykit, official, address, tmp_path):
    array = pixels(3, 2).astype(np.float64)
    np.save(tmp_path / "x.npy", array)
    for given, shape in (
        ("[[1, 2], [3, 4]]", (2, 2)),
        ("x=[1, 2]", (1, 2)),
        (f"x={tmp_path}/x.npy", (3, 2)),
        (f"{tmp_path}/x.npy", (3, 2)),
    ):
        found = deploykit("predict", address, "echo", "--input", given, "--json")
        assert found.status == 0, found.stderr
        assert (sent(official).dtype, sent(official).shape) == (np.float32, shape)
        assert found.document["values"]["x"]["shape"] == list(shape)
    assert np.allclose(found.document["values"]["x"]["values"], array)
    assert found.document["address"] == address
    assert found.document["signature"] == "serving_default"


def test_predict_says_whom_it_asks(deploykit, official, address):
    asked = ("--version", "3", "--outputs", "x", "--signature", "serving_default")
    assert deploykit("predict", address, "echo", "--input", "[1, 2]", *asked).status == 0
    spec = official.requests[-1].model_spec
    assert (spec.version.value, spec.signature_name) == (3, "serving_default")
    assert list(official.requests[-1].output_filter) == ["x"]
    found = deploykit("predict", address, "echo", "--input", "[1, 2]", "--version-label", "stable")
    assert found.status == 0
    assert official.requests[-1].model_spec.version_label == "stable"
    assert found.stdout == "x: float32[1, 2]\n[[1. 2.]]\n"


def png(pixels: np.ndarray) -> bytes:
    height, width, _ = pixels.shape
    rows = b"".join(b"\0" + row.tobytes() for row in pixels)
    chunks = (
        (b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)),
        (b"IDAT", zlib.compress(rows)),
        (b"IEND", b""),
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
        for kind, body in chunks
    )


def test_an_image_is_decoded_and_resized(deploykit, official, address, tmp_path):
    official.shapes = {"image": (1, [-1, 4, 6, 3])}
    color = np.array([10, 100, 250], np.uint8)
    (tmp_path / "a.png").write_bytes(png(np.tile(color, (8, 12, 1))))
    steps = {"format": 1, "inputs": {"image": {"mean": [1.0], "scale": 1.0}}}
    (tmp_path / "steps.json").write_text(json.dumps(steps))
    asked = ("predict", address, "echo", "--input", f"image={tmp_path}/a.png")
    refused = deploykit(*asked)
    assert refused.status == 2
    assert "give --preprocess 0..1 or --preprocess -1..1\n" in refused.stderr
    found = deploykit(*asked, "--preprocess", "0..1")
    assert (found.status, found.stderr) == (
        0, Containing("12x8 -> 6x4", "0..1 (from --preprocess"),
    )  # fmt: skip
    assert sent(official, "image").shape == (1, 4, 6, 3)
    assert np.allclose(sent(official, "image"), color.astype(np.float32) / 255)
    more = ("--preprocess", tmp_path / "steps.json")
    assert deploykit("predict", address, "echo", "--input", f"{tmp_path}/a.png", *more).status == 0
    assert np.allclose(sent(official, "image"), color.astype(np.float32) - 1)


def test_a_model_of_texts_gets_the_bytes(deploykit, official, address, tmp_path):
    official.shapes = {"x": (7, [-1])}
    (tmp_path / "a.png").write_bytes(b"\xff\x00")
    found = deploykit("predict", address, "echo", "--input", f"x={tmp_path}/a.png", "--json")
    assert sent(official).tolist() == [b"\xff\x00"]
    assert found.document["values"]["x"]["values"] == [{"b64": "/wA="}]
    found = deploykit("predict", address, "echo", "--input", 'x=["a", "é"]', "--json")
    assert sent(official).tolist() == [b"a", "é".encode()]
    assert found.document["values"]["x"]["values"] == ["a", "é"]


def test_the_best_classes_are_named(deploykit, official, address, tmp_path):
    (tmp_path / "labels.txt").write_text("cat\ndog\n")
    asked = ("predict", address, "echo", "--input", "[[0.25, 0.75], [3, 1]]")
    found = deploykit(*asked, "--labels", tmp_path / "labels.txt", "--json")
    labels = [[each["label"] for each in sample] for sample in found.document["predictions"]]
    assert labels == [["dog", "cat"], ["cat", "dog"]]
    text = deploykit(*asked, "--labels", tmp_path / "labels.txt", "--top", "1").stdout
    assert "0.750000       1   dog" in text
    assert "0.25" not in text


def test_a_number_that_is_none_is_null(deploykit, official, address):
    found = deploykit("predict", address, "echo", "--input", "[NaN, 1]", "--json")
    assert found.document["values"]["x"]["values"] == [[None, 1.0]]
    found = deploykit("predict", address, "echo", "--input", "[NaN, 1]", "--top", "1")
    assert found.status == 2
    assert shows(found.stderr, "class-scores-nan")


WRONG = (
    "--input y=1", "--input x=nothing.npy", '--input x="text"', "--input x=[[1,2,3]]",
    "--input x=[1,2] --input x=[1,2]", "--input x={}", "--input x=x.txt",
    "--input x=[1,2] --signature q", "--input x=[1,2] --version 1 --version-label a",
)  # fmt: skip


@pytest.mark.golden("usage/predict")
def test_what_cannot_be_asked(deploykit, official, address, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x.txt").write_text("text")
    said = refusals(deploykit, ("predict", address, "echo"), WRONG, tmp_path)
    assert_golden(*(each.replace(address, "ADDRESS") for each in said))
    assert "Predict" not in official.calls


def test_a_missing_input_is_named(deploykit, official, address):
    official.shapes = {"x": (1, [-1]), "y": (9, None)}
    found = deploykit("predict", address, "echo", "--input", "x=[1]")
    assert found.status == 2
    assert shows(found.stderr, "input-missing", name="y", inputs=["x float32[?]", "y int64"])


def test_fractions_are_not_cut_off(deploykit, official, address):
    official.shapes = {"x": (3, [-1, 2])}
    found = deploykit("predict", address, "echo", "--input", "[1.5, 2]")
    assert found.status == 2
    assert shows(found.stderr, "does-not-fit", got="float64", what="the value")
    assert deploykit("predict", address, "echo", "--input", "[1, 2]").status == 0
    assert sent(official).tolist() == [[1, 2]]
    assert sent(official).dtype == np.int32


def test_status_of_a_model(deploykit, official, address):
    found = deploykit("status", address, "echo", "--json")
    assert found.status == 0, found.stderr
    assert [each["state"] for each in found.document["versions"]] == ["AVAILABLE", "END"]
    takes = found.document["signatures"]["serving_default"]["inputs"]["x"]
    assert takes == {"name": "in_x:0", "dtype": "float32", "shape": [-1, 2]}
    text = deploykit("status", address, "echo").stdout
    assert "INVALID_ARGUMENT: no SavedModel" in text
    assert "x float32[?, 2]" in text
    assert deploykit("status", address, "missing").status == 2


def test_status_of_a_server(deploykit, official, address):
    found = deploykit("status", address, "--json")
    assert (found.status, found.document["health"]) == (0, None)
    assert shows(deploykit("status", address).stdout, "server-responds", address=address)
    assert deploykit("status", address, "--version", "1").status == 2


@pytest.mark.parametrize(
    ("health", "said", "status"),
    [(b"\x08\x01", "SERVING", 0), (b"\x08\x02", "NOT_SERVING", 5), (b"\x08\x00", "UNKNOWN", 0)],
)
def test_the_health_of_a_server(deploykit, official, health, said, status):
    official.health = health
    found = deploykit("status", f"127.0.0.1:{official.listen()}", "--json")
    assert (found.status, found.document["health"]) == (status, said)
    assert shows(found.stderr, "server-not-serving", reason=showing("not-serving")) == (status == 5)


def test_a_model_that_is_not_ready_is_status_5(deploykit, official, address):
    found = deploykit("status", address, "loading", "--json")
    assert (found.status, found.document["signatures"]) == (5, {})
    assert shows(
        found.stderr, "server-not-serving", reason=showing("no-version-of-model", model="loading")
    )
    assert "GetModelMetadata" not in official.calls


@pytest.mark.sampled
@pytest.mark.parametrize("command", [["predict", "--input", "1"], ["status"],
                                     ["load-test", "--data", "x.npz"]])  # fmt: skip
def test_no_server(deploykit, command):
    found = deploykit(command[0], "127.0.0.1:1", "m", *command[1:])
    assert (found.status, found.printed) == (2, "")
    assert shows(found.stderr, "server-unavailable", source="127.0.0.1:1")


@pytest.fixture
def data(tmp_path):
    np.savez(tmp_path / "x.npz", x=np.arange(10, dtype=np.float32).reshape(5, 2))
    return tmp_path / "x.npz"


@pytest.mark.sampled
def test_a_load_of_callers(deploykit, official, address, data, tmp_path):
    official.seconds = 0.01
    plot = tmp_path / "load.svg"
    found = deploykit("load-test", address, "echo", "--data", data, "--concurrency", "1,3",
                      "--seconds", "0.4", "--plot", plot, "--json")  # fmt: skip
    assert shows(found.stderr, "fed-as-is", what=Containing("float32 2", "x.npz"))
    assert found.stderr.count("\n") == 1
    loads = found.document["loads"]
    assert [each["callers"] for each in loads] == [1, 3]
    for each in loads:
        assert each["statuses"] == {"OK": pytest.approx(each["throughput"] * each["seconds"])}
        assert 10 <= each["latency_ms"]["p50"] <= each["latency_ms"]["p99"]
        assert each["failed"] == 0
    sizes = {tuple(d.size for d in r.inputs["x"].tensor_shape.dim) for r in official.requests[1:]}
    assert sizes == {(1, 2)}
    assert len({r.inputs["x"].tensor_content for r in official.requests[1:]}) == 5
    assert because("closed-loop") in plot.read_text()


@pytest.mark.sampled
def test_a_load_at_a_rate_from_several_processes(deploykit, official, address, data):
    found = deploykit("load-test", address, "echo", "--data", data, "--rate", "50", "--batch", "5",
                      "--seconds", "1", "--processes", "2")  # fmt: skip
    assert found.status == 0, found.stderr
    assert "50 requests/s" in found.stdout


@pytest.mark.slow
def test_the_highest_rate_that_holds(deploykit, official, address, data):
    official.seconds = 0.02
    found = deploykit("load-test", address, "echo", "--data", data, "--seconds", "0.3",
                      "--latency-limit", "60000", "--json")  # fmt: skip
    assert found.status == 0, found.stderr
    held = [each["rate"] for each in found.document["loads"][1:] if not each["failed"]]
    assert found.document["highest_rate"] == max(held, default=0.0)
    assert found.document["loads"][0]["callers"] == 8
    assert all(each["rate"] for each in found.document["loads"][1:])


@pytest.mark.sampled
def test_refusals_are_counted(deploykit, official, address, data, monkeypatch):
    """The first call, which says what is wrong, passes; then the server is full."""
    seen = Official.seen

    def full(self, method, request, context):
        if len(self.calls) > 4:
            request.model_spec.name = "full"
        seen(self, method, request, context)

    monkeypatch.setattr(Official, "seen", full)
    found = deploykit("load-test", address, "echo", "--data", data, "--concurrency", "1",
                      "--seconds", "0.3", "--json")  # fmt: skip
    assert found.status == 0, found.stderr
    assert found.document["loads"][0]["statuses"].keys() == {"RESOURCE_EXHAUSTED"}
    assert found.document["loads"][0]["latency_ms"] == {}
    assert found.document["loads"][0]["failed_ms"]["p99"] > 0


@pytest.mark.golden("usage/load-test")
def test_what_is_no_load_test(deploykit, address, data):
    wrong = ("--rate=5 --concurrency=2", "--plot=load.jpg", "--rate=0")
    command = ("load-test", address, "echo", "--data", data)
    assert_golden(*refusals(deploykit, command, wrong, data.parent))


def test_data_that_do_not_fit_are_refused_before_the_load(deploykit, official, address, tmp_path):
    np.savez(tmp_path / "x.npz", x=np.zeros((5, 3), np.float32))
    found = deploykit("load-test", address, "echo", "--data", tmp_path / "x.npz")
    assert found.status == 2
    assert shows(found.stderr, "data-shape", name="x", shape=[5, 3])
    assert "Predict" not in official.calls
