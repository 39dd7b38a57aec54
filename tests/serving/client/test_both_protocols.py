"""The commands say the same of a server over each protocol that it speaks, gRPC and HTTP."""

import re

import numpy as np
import pytest

import deploykit as api
from deploykit.serving.client.endpoint import CallError
from deploykit.serving.protocol.open_inference import TYPES
from deploykit.transforms.common.errors import Error, GraphError
from deploykit.transforms.ir.tensors import numpy_type
from tests.deploykit.conftest import command_line
from tests.serving.echo_model import echo
from tests.serving.served import Served, free_port
from tests.serving.small_models import half_plus
from tests.support import Containing, because, raises, says, showing, shows, tf

WAYS = ["tensorflow grpc", "v2 grpc", "v2 http"]
EACH = pytest.mark.parametrize("way", WAYS)
V2 = pytest.mark.parametrize("way", WAYS[1:])


def values(datatype: str, rows: int) -> np.ndarray:
    """Return rows of two values, the smallest and the largest first."""
    dtype = numpy_type(TYPES[datatype])
    if dtype.kind == "O":
        array = np.array([[b"", b"\x00\xff bytes"], ["größer".encode(), b"x" * 300]], object)
    elif dtype.kind in "iu":
        limits = np.iinfo(dtype)
        array = np.array([[limits.min, limits.max], [1, 2]], dtype)
    elif dtype.kind == "b":
        array = np.array([[False, True], [True, False]])
    else:
        array = np.array([[0.5, -2], [np.nan, np.inf]], np.float32).astype(dtype)
    return array[:rows]


def lengths(folder) -> None:
    """Write a model that returns the lengths of strings [N]."""
    module = tf.Module()
    module.run = tf.function(lambda x: {"y": tf.strings.length(x)})
    tf.saved_model.save(module, str(folder / "1"), {
        "serving_default": module.run.get_concrete_function(tf.TensorSpec([None], tf.string, "x"))
    })  # fmt: skip


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """Four models, of which one cannot be loaded, in a file that says so."""
    base = tmp_path_factory.mktemp("models")
    echo(base / "echo")
    half_plus(base / "half", 2.0)
    (base / "broken" / "1").mkdir(parents=True)
    (base / "broken" / "1" / "saved_model.pb").write_bytes(b"nonsense")
    lengths(base / "bytes")
    labels = 'version_labels { key: "stable" value: 123 }'
    config = base / "models.config"
    config.write_text("model_config_list {" + "".join(
        f'config {{ name: "{name}" base_path: "{base / name}" model_platform: "tensorflow" '
        f'{labels if name == "half" else ""} }}' for name in ("echo", "half", "bytes", "broken")
    ) + "}")  # fmt: skip
    return config


@pytest.fixture(scope="module")
def server(models):
    port = free_port()
    server = Served(f"--model_config_file={models}", f"--rest_api_port={port}",
                    "--allow_version_labels_for_unavailable_models=true")  # fmt: skip
    server.url = f"http://127.0.0.1:{port}"
    yield server
    server.kill()


@pytest.fixture
def ask(server, way):
    """Call a function of the API."""
    protocol, transport = way.split()
    address = server.address if transport == "grpc" else server.url

    def call(function, *arguments, **options):
        return function(address, *arguments, protocol=protocol, timeout=30, **options)

    return call


@pytest.fixture
def command(server, way):
    """Run a command."""
    protocol, transport = way.split()
    address = server.address if transport == "grpc" else server.url

    def run(name, *arguments):
        return command_line(name, address, *arguments, f"--protocol={protocol}")

    return run


@pytest.mark.sampled
@EACH
@pytest.mark.parametrize("rows", [2, 1, 0])
def test_all_datatypes_go_and_come_as_they_are(ask, rows):
    inputs = {each.lower(): values(each, rows) for each in TYPES}
    found = ask(api.predict, "echo", inputs)
    assert len(found.outputs) == len(TYPES) == 14
    for name, array in inputs.items():
        output = found.outputs[f"{name}_out"]
        assert (output.dtype, output.shape) == (array.dtype, array.shape)
        assert output.tobytes() == array.tobytes() or (output == array).all()


@pytest.mark.sampled
@EACH
def test_all_datatypes_as_a_command_shows_them(command, tmp_path):
    given = ["bf16=[0.5, 2]", 'bytes=["a", "größer"]']  # which .npy does not have
    for each in TYPES.keys() - {"BF16", "BYTES"}:
        np.save(tmp_path / f"{each}.npy", values(each, 1)[0])
        given.append(f"{each.lower()}={tmp_path}/{each}.npy")
    found = command("predict", "echo", *given, "--json")
    assert found.status == 0, found.stderr
    shown = found.document["values"]
    assert {name: each["dtype"] for name, each in shown.items()} == {
        f"{each.lower()}_out": type_ for each, type_ in TYPES.items()
    }
    assert shown["bytes_out"]["values"] == [["a", "größer"]]
    assert shown["bf16_out"]["values"] == [[0.5, 2.0]]
    assert shown["uint64_out"]["values"] == [[0, 2**64 - 1]]


@EACH
def test_files_of_a_model_that_takes_bytes(command, tmp_path):
    """Several files are a batch, whether or not the metadata say that they are photos."""
    given = []
    for name, content in (("a", b"\x00\xff"), ("b", b"text")):
        (tmp_path / name).write_bytes(content)
        given += ["--input", tmp_path / name]
    found = command("predict", "bytes", *given, "--json")
    assert found.status == 0, found.stderr
    assert found.document["values"]["y"]["values"] == [2, 4]
    assert found.document["fed"] == {"x": showing("files-sent", count=2)}


@EACH
@pytest.mark.parametrize(
    ("which", "fits"),
    [({}, True), ({"version": 123}, True), ({"version_label": "stable"}, True),
     ({"version": 9}, False), ({"version_label": "nobody"}, False)],
    ids=str,
)  # fmt: skip
def test_a_version_by_number_or_label(ask, which, fits):
    if fits:
        found = ask(api.predict, "half", {"x": [2.0]}, **which)
        assert found.outputs["y"].tolist() == [[3.0]]
        assert ask(api.status, "half", **which).problem == ""
        return
    for call in (lambda: ask(api.predict, "half", {"x": [2.0]}, **which),
                 lambda: ask(api.status, "half", **which)):  # fmt: skip
        with pytest.raises(CallError) as raised:
            call()
        expected = "INVALID_ARGUMENT" if "version_label" in which else "NOT_FOUND"
        assert raised.value.status == expected


@EACH
def test_a_version_and_a_label(ask):
    with raises(Error, "version-and-label"):
        ask(api.predict, "half", {"x": 1}, version=123, version_label="stable")


@EACH
def test_a_signature_by_name(ask):
    found = ask(api.predict, "echo", {"x": [[1.0, 2.0]]}, signature="swapped")
    assert (found.outputs["y"].tolist(), found.signature) == ([[2.0, 1.0]], "swapped")
    with raises(GraphError, "request-signature-unknown", name="swaped"):
        ask(api.predict, "echo", {"x": 1}, signature="swaped")


@EACH
def test_outputs_by_name(ask):
    inputs = {each.lower(): values(each, 1) for each in TYPES}
    found = ask(api.predict, "echo", inputs, outputs=["bytes_out", "fp16_out"])
    assert found.outputs.keys() == {"bytes_out", "fp16_out"}
    with pytest.raises(CallError) as raised:
        ask(api.predict, "echo", inputs, outputs=["nothing"])
    assert raised.value.status == "INVALID_ARGUMENT"


@EACH
@pytest.mark.parametrize(
    ("arguments", "status", "says"),
    [
        (["nobody", "1"], 2, because("models-served", names="")),
        (["broken", "1"], 2, says("versions-served", model="broken")),
        (["half", "z=1"], 2, says("input-argument-form")),
        (
            ["half", "[1, 2]"],
            2,
            says("value-shape", shape=[1, 2], name="x", expected="float32[?, 1]"),
        ),
        (["half", "text"], 4, says("input-file-missing")),
    ],
)
def test_errors_of_predict(command, arguments, status, says):
    ended = command("predict", *arguments)
    assert (ended.status, ended.stdout, ended.stderr.count("\n")) == (status, "", 1)
    assert re.search(says, ended.stderr)


@EACH
@pytest.mark.parametrize(("model", "status"), [("half", 0), ("echo", 0), ("broken", 5), ("no", 2)])
def test_exit_status_of_status(command, model, status):
    ended = command("status", model)
    assert ended.status == status, ended.stderr
    if status == 5:
        assert shows(
            ended.stderr,
            "server-not-serving",
            reason=showing("no-version-of-model", model="broken"),
        )


def test_status_is_the_same_over_each(server):
    found = []
    for way in WAYS:
        protocol, transport = way.split()
        address = server.address if transport == "grpc" else server.url
        for model in ("half", "echo"):
            document = api.status(address, model, protocol=protocol).document()
            signatures = document["signatures"]
            default = signatures.get("serving_default") or signatures["default"]
            for tensors in (default["inputs"], default["outputs"]):
                for tensor in tensors.values():
                    del tensor["name"]  # in the graph
                    tensor["shape"] = list(tensor["shape"])
            found.append((model, document["versions"], default["inputs"], default["outputs"]))
    assert found[:2] == found[2:4] == found[4:]


@V2
def test_a_server_is_live_and_ready(command):
    ended = command("status", "--json")
    assert ended.status == 0
    assert (ended.document["health"], ended.document["live"]) == ("SERVING", True)
    assert ended.document["server"] == f"deploykit {api.__version__}"
    server = Containing(api.__version__)
    assert shows(command("status").stdout, "server-live", server=server)


@pytest.mark.sampled
@EACH
@pytest.mark.parametrize("load", [["--concurrency=1,3"], ["--rate=60"]], ids=["closed", "open"])
def test_load_test(command, tmp_path, load):
    np.savez(tmp_path / "x.npz", x=np.ones((5, 1), np.float32))
    common = ("half", "--data", tmp_path / "x.npz", "--seconds=0.6", "--batch=2")
    ended = command("load-test", *common, *load, "--json")
    assert ended.status == 0, ended.stderr
    found = ended.document
    assert (found["inputs"], found["outputs"]) == (["x"], ["y"])
    assert {each["failed"] for each in found["loads"]} == {0}
    assert all(each["statuses"]["OK"] > 3 for each in found["loads"])
    keys = {"callers", "rate", "seconds", "statuses", "throughput", "latency_ms", "failed_ms",
            "generator_busy", "sent_late", "generator_limited", "failed"}  # fmt: skip
    assert all(each.keys() == keys for each in found["loads"])
    assert command("load-test", "nobody", *common[1:]).status == 2


def test_a_client_speaks_one_protocol(server):
    with pytest.raises(Error, match=says("client-protocol")):
        api.Client(server.address, protocol="v2")
    with pytest.raises(
        Error, match=says("not-one-of", what="--protocol", known=["tensorflow", "v2"], got="v3")
    ):
        api.predict(server.address, "half", {"x": 1}, protocol="v3")
    with raises(Error, "grpc-address"):
        api.predict(server.url, "half", {"x": 1})
    ended = command_line("predict", server.address, "half", "1", "--protocol=v1")
    assert ended.status == 2
    assert shows(ended.stderr, "usage", reason=Containing("'tensorflow', 'v2'"))
