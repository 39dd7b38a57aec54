"""What callers make up is not kept: a server is as large after hostile calls as before."""

import contextlib
import itertools
import random
import socket
import time
from collections.abc import Iterator

import grpc
import psutil
import pytest

from tests.hostile.wire import block, varint
from tests.serving.served import Served, free_port
from tests.serving.small_models import half_plus

MIB = 1 << 20
MAX_GROWN = 64 * MIB
PATIENCE = 30  # seconds that memory has to go back
PREDICTION = "/tensorflow.serving.PredictionService/"
MODELS = "/tensorflow.serving.ModelService/"
SHAPE = block(2, block(2, b"\x08\x01") + block(2, b"\x08\x01"))
TENSOR = b"\x08\x01" + SHAPE + block(5, b"\0\0\0\x40")


@pytest.fixture(scope="module")
def server(tmp_path_factory) -> Iterator[Served]:
    base = tmp_path_factory.mktemp("models")
    model = half_plus(base / "m", 2)
    rest = free_port()
    started = Served(model, f"--rest_api_port={rest}", f"--access_log={base}/log", forked=False)
    started.rest = rest
    yield started
    started.kill()


def predict(name: bytes = b"m", alias: bytes = b"x", signature: bytes = b"", label: bytes = b"",
            output: bytes = b"y", tensor: bytes = TENSOR) -> bytes:  # fmt: skip
    spec = block(1, block(1, name) + block(3, signature) + (block(4, label) if label else b""))
    return spec + block(2, block(1, alias) + block(2, tensor)) + block(3, output)


def named(name: bytes) -> Iterator[tuple[str, bytes]]:
    """Yield calls over gRPC with a name wherever one may stand."""
    spec = block(1, block(1, name))
    example = block(2, block(1, block(1, block(1, b""))))
    for part in ("name", "alias", "signature", "label", "output"):
        yield f"{PREDICTION}Predict", predict(**{part: name})
    for method in ("Classify", "Regress"):
        yield PREDICTION + method, spec + example
        yield PREDICTION + method, block(1, block(1, b"m") + block(3, name)) + example
    task = block(1, block(1, b"m") + block(3, b"classify_x_to_y"))
    yield f"{PREDICTION}MultiInference", block(1, task + block(2, name)) + example
    yield f"{PREDICTION}MultiInference", block(1, spec + block(2, b"x")) + example
    yield f"{PREDICTION}GetModelMetadata", block(1, block(1, b"m")) + block(2, name)
    yield f"{PREDICTION}GetModelMetadata", spec + block(2, b"signature_def")
    yield f"{MODELS}GetModelStatus", spec
    yield f"{MODELS}GetModelStatus", block(1, block(1, b"m") + block(4, name))
    config = block(1, name) + block(2, b"models/" + name)
    yield f"{MODELS}HandleReloadConfigRequest", block(1, block(1, block(1, config)))
    yield "/grpc.health.v1.Health/Check", block(1, name)
    parts = {1: name, 2: name, 3: name, 4: block(1, b"signature_name") + block(2, block(3, name)),
             5: block(1, name) + block(2, b"FP32"), 6: block(1, name)}  # fmt: skip
    for field, part in parts.items():
        sound = b"" if field == 1 else block(1, b"m")
        yield "/inference.GRPCInferenceService/ModelInfer", sound + block(field, part)
    for method in ("ModelReady", "ModelMetadata"):
        yield f"/inference.GRPCInferenceService/{method}", block(1, name)
        yield f"/inference.GRPCInferenceService/{method}", block(1, b"m") + block(2, name)


def asked(server: Served, path: str, content: bytes) -> str:
    """Return the code of a call over gRPC."""
    call = server.channel.unary_unary(path).future(content, timeout=60)
    words = "" if call.code() is grpc.StatusCode.OK else call.details()
    assert len(words) <= 1100, "a message is as long as what was sent"
    return call.code().name


def post(server: Served, path: bytes, body: bytes) -> None:
    with (
        contextlib.suppress(OSError),
        socket.create_connection(("127.0.0.1", server.rest), timeout=60) as client,
    ):
        head = b"POST %s HTTP/1.1\r\nHost: h\r\nConnection: close\r\nContent-Length: %d\r\n\r\n"
        client.sendall(head % (path, len(body)) + body)
        while client.recv(1 << 16):
            pass


def texts(name: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield calls over REST with a name wherever one may stand."""
    path = b"/v1/models/m:predict"
    short = name[: 50 << 10]  # of a head
    yield b"/v1/models/%s:predict" % short, b"{}"
    yield b"/v1/models/m/labels/%s:predict" % short, b"{}"
    yield b"/%s" % short, b""
    yield path, b'{"inputs": {"%s": [[1]]}}' % name
    yield path, b'{"instances": [{"%s": 1}, {"x": 1}]}' % name
    yield path, b'{"signature_name": "%s", "instances": [1]}' % name
    yield path, b'{"instances": ["%s"]}' % name
    infer = b"/v2/models/m/infer"
    yield b"/v2/models/%s/infer" % short, b"{}"
    yield b"/v2/models/m/versions/%s/infer" % short, b"{}"
    yield infer, b'{"id": "%s", "inputs": []}' % name
    yield infer, b'{"inputs": [{"name": "%s", "datatype": "FP32", "shape": []}]}' % name
    yield infer, b'{"inputs": [{"name": "x", "datatype": "%s", "shape": []}]}' % name
    yield infer, b'{"inputs": [], "outputs": [{"name": "%s"}]}' % name
    yield infer, b'{"inputs": [], "parameters": {"signature_name": "%s"}}' % name
    yield b"/v1/models/m:regress", b'{"examples": [{"%s": null}]}' % name
    yield b"/v1/models/m:classify", b'{"signature_name": "%s", "examples": [{"x": 1}]}' % name


def resident(server: Served) -> int:
    return psutil.Process(server.process.pid).memory_info().rss


@contextlib.contextmanager
def nothing_kept(server: Served) -> Iterator[None]:
    """Fail where a server stays larger than before the block."""
    for path, content in named(b"nobody"):
        asked(server, path, content)
    for path, body in texts(b"nobody"):
        post(server, path, body)
    before = resident(server)
    yield
    end = time.monotonic() + PATIENCE
    while (grown := resident(server) - before) > MAX_GROWN and time.monotonic() < end:
        time.sleep(0.1)
    assert grown <= MAX_GROWN, f"{grown // MIB} MiB more are held"
    assert asked(server, f"{PREDICTION}Predict", predict()) == "OK"
    assert "Traceback" not in server.said


@pytest.mark.slow
def test_names_beyond_the_limit_are_refused_wherever_they_stand(server):
    """None is looked up first: the code would be another one."""
    for path, content in named(b"n" * 257):
        assert asked(server, path, content) == "INVALID_ARGUMENT", path
    for path, content in named(b"n" * 256):
        asked(server, path, content)
    assert asked(server, f"{PREDICTION}Predict", predict()) == "OK"


@pytest.mark.sampled
def test_names_of_20_mib_are_not_kept(server):
    with nothing_kept(server):
        for number in range(5):  # five names are more than may be held
            name = b"%d" % number + b"n" * (20 * MIB)
            for path, content in itertools.islice(named(name), number, None, 5):
                assert asked(server, path, content) == "INVALID_ARGUMENT"
        for path, body in texts(name):
            post(server, path, body)


def hostile(server: Served, rng: random.Random) -> None:
    """Make a call of one of many kinds."""
    size = rng.choice([1, 10, 250, 257, 5000, 100_000])
    name = b"%d" % rng.getrandbits(60) + b"n" * size
    kind = rng.randrange(6)
    if kind < 2:
        asked(server, *rng.choice(list(named(name))))
    elif kind == 2:
        post(server, *rng.choice(list(texts(name))))
    elif kind == 3:
        path, content = rng.choice(list(named(name)))
        damaged = bytearray(content)
        for _ in range(rng.randint(1, 9)):
            damaged[rng.randrange(len(damaged))] = rng.randrange(256)
        asked(server, path, bytes(damaged[: rng.randint(1, len(damaged))]))
    elif kind == 4:
        sizes = [rng.choice([0, 1, 2, 3, 1000, 1 << 40]) for _ in range(rng.randint(0, 5))]
        shape = block(2, b"".join(block(2, b"\x08" + varint(each)) for each in sizes))
        values = block(4, rng.randbytes(rng.choice([0, 4, 400, 400_000])))
        dtype = b"\x08" + varint(rng.choice([1, 1, 1, 2, 7, 99]))
        asked(server, f"{PREDICTION}Predict", predict(tensor=dtype + shape + values))
    else:
        asked(server, f"/{name[:300].decode()}/{rng.random()}", rng.randbytes(size))


@pytest.mark.parametrize("calls", [300, pytest.param(10_000, marks=pytest.mark.sampled)])
def test_hostile_calls_of_any_kind_leave_nothing_behind(server, calls):
    rng = random.Random(calls)
    with nothing_kept(server):
        for _ in range(calls):
            hostile(server, rng)
