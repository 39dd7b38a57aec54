"""Hostile requests over gRPC, REST and bare HTTP, and how a server must answer them."""

import contextlib
import shutil
import socket
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import grpc

from deploykit.serving.protocol.protos import PredictRequest
from tests.hostile.commands import saved_model
from tests.hostile.corpus.saved_models import save
from tests.hostile.watching import MIB, peak
from tests.hostile.wire import block, number, varint
from tests.serving.served import Served, free_port

SECONDS = 10  # that an answer may take
SPARE = 64 * MIB  # what the server may take for a request, besides ten times its size

PREDICTION = "/tensorflow.serving.PredictionService/"
BAD = ("INVALID_ARGUMENT",)
REFUSED = ("INVALID_ARGUMENT", "NOT_FOUND", "INTERNAL", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION",
           "PERMISSION_DENIED", "UNIMPLEMENTED", "OK")  # fmt: skip
"""What is no crash; INTERNAL is what gRPC itself says of bytes that are no message."""


@dataclass(frozen=True)
class Ask:
    """A request."""

    name: str
    target: str
    """A method of gRPC (with its service unless that is PredictionService), a path of REST, or ""
    for bytes on the wire."""
    content: bytes
    right: tuple[object, ...] = REFUSED
    head: str = ""
    """More lines of the head of a request of REST, each with its line break."""


def predict(
    sizes: tuple[int, ...] = (1, 3),
    dtype: int = 1,
    alias: str = "x",
    model: str = "model",
    **values,
) -> PredictRequest:
    """Return a request."""
    made = PredictRequest()
    made.model_spec.name = model
    tensor = made.inputs[alias]
    tensor.dtype = dtype
    tensor.tensor_shape.SetInParent()
    for size in sizes:
        tensor.tensor_shape.dim.add(size=size)
    for key, value in (values or {"float_val": [1.0, 2.0, 3.0]}).items():
        if isinstance(value, bytes):
            setattr(tensor, key, value)
        else:
            getattr(tensor, key).extend(value)
    return made


def tensors() -> Iterator[Ask]:
    """Yield requests with tensors that are not what they say."""
    made = {
        "2^40 rows with three values": predict((1 << 40, 3)),
        "2^62 x 2^62": predict((1 << 62, 1 << 62)),
        "minus one rows": predict((-1, 3)),
        "no values": predict((1, 3), float_val=[]),
        "too few values": predict((5, 3)),
        "too many values": predict((1, 3), float_val=[1.0] * 100_000),
        "content too short": predict((1, 3), tensor_content=b"\0" * 11),
        "content too long": predict((1, 3), tensor_content=b"\0" * 13),
        "unknown type": predict(dtype=99),
        "no type": predict(dtype=0),
        "type of a reference": predict(dtype=101),
        "a text": predict(dtype=7, string_val=[b"a", b"b", b"c"]),
        "2^30 texts": predict((1 << 30, 3), dtype=7, string_val=[b"a"]),
        "a resource": predict(dtype=20, float_val=[]),
        "a variant": predict(dtype=21, float_val=[]),
        "another shape": predict((1, 7), float_val=[1.0] * 7),
        "no dimension": predict((), float_val=[1.0]),
        "300 dimensions": predict((1,) * 300, float_val=[1.0]),
        "another input": predict(alias="nothing"),
        "an input with an escape": predict(alias="\x1b[2J\n"),
    }
    for name, request in made.items():
        right = ("OK", *BAD) if name.endswith(" values") else BAD  # TensorFlow repeats the last
        yield Ask(f"a tensor: {name}", "Predict", request.SerializeToString(), right)
    yield Ask("a tensor of NaN", "Predict",
              predict(float_val=[float("nan")] * 3).SerializeToString(),
              ("OK",))  # fmt: skip
    yield Ask("no rows", "Predict", predict((0, 3), float_val=[]).SerializeToString(),
              ("OK", "INVALID_ARGUMENT"))  # fmt: skip


def calls() -> Iterator[Ask]:
    """Yield other requests over gRPC."""
    good = predict().SerializeToString()
    yield Ask("a sound request", "Predict", good, ("OK",))
    for name, model in (("a path", "../../etc"), ("nothing", ""), ("a null", "a\0b"),
                        ("100,000 letters", "a" * 100_000)):  # fmt: skip
        yield Ask(f"a model of {name}", "Predict", predict(model=model).SerializeToString(),
                  ("NOT_FOUND", "INVALID_ARGUMENT"))  # fmt: skip
    yield Ask("a version of minus one", "Predict", good + block(1, block(2, number(1,
              (1 << 64) - 1))),
              ("NOT_FOUND", "INVALID_ARGUMENT"))  # fmt: skip
    yield Ask("a signature that is missing", "Predict", good + block(1, block(3, b"gone")),
              ("FAILED_PRECONDITION",))  # fmt: skip
    yield Ask("an output that is missing", "Predict", good + block(3, b"gone"), BAD)
    yield Ask("100,000 outputs", "Predict", good + block(3, b"y") * 100_000)
    yield Ask("100,000 inputs", "Predict", good + b"".join(
        block(2, block(1, str(i).encode()) + block(2, b"")) for i in range(100_000)),
              BAD)  # fmt: skip
    yield Ask("a million empty inputs", "Predict", good + b"\x12\x00" * 1_000_000)
    for method in ("Predict", "Classify", "Regress", "MultiInference", "GetModelMetadata"):
        yield Ask(f"{method}: nothing", method, b"", ("INVALID_ARGUMENT", "NOT_FOUND"))
        yield Ask(f"{method}: garbage", method, b"\xff" * 100)
        yield Ask(f"{method}: a length beyond the end", method, block(1, b"", 1 << 40))
        yield Ask(f"{method}: groups 5,000 deep", method, varint(99 << 3 | 3) * 5_000)
        yield Ask(f"{method}: 5 MB of empty fields", method, b"\xa2\x0c\x00" * 1_700_000)
    examples = block(2, block(1, b"\x0a\x00" * 100_000))
    spec = block(1, block(1, b"model"))
    yield Ask("100,000 empty examples", "Classify", spec + examples)
    yield Ask("an example of garbage", "Regress", spec + block(2, block(1, block(1, b"\xff" * 9))))
    yield Ask("10,000 tasks", "MultiInference", block(1, spec) * 10_000 + examples)
    yield Ask("metadata of 100,000 fields", "GetModelMetadata", spec + block(2, b"x") * 100_000)
    yield Ask("a method that is not there", "Nothing", good, ("UNIMPLEMENTED",))


def texts() -> Iterator[Ask]:
    """Yield requests over REST."""
    path = "/v1/models/model:predict"
    bad = {
        "empty": b"",
        "no JSON": b"{",
        "bytes": b"\xff\xfe",
        "a list": b"[]",
        "a number": b"7",
        "null": b"null",
        "nothing asked": b"{}",
        "instances of nothing": b'{"instances": null}',
        "instances of a text": b'{"instances": "abc"}',
        "instances and inputs": b'{"instances": [[1,2,3]], "inputs": [[1,2,3]]}',
        "ragged rows": b'{"instances": [[1,2,3],[1]]}',
        "texts for numbers": b'{"instances": [["a","b","c"]]}',
        "objects for numbers": b'{"instances": [[{"a": 1},2,3]]}',
        "bytes for numbers": b'{"instances": [[{"b64": "!!!"},2,3]]}',
        "lists 100,000 deep": b"[" * 100_000,
        "lists 100,000 deep, closed": b'{"instances": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        "objects 100,000 deep": b'{"a":' * 100_000,
        "a number of 100,000 digits": b'{"instances": [[' + b"9" * 100_000 + b",2,3]]}",
        "a number of 1e999": b'{"instances": [[1e999,2,3]]}',
        "half of a surrogate": b'{"signature_name": "\\ud800", "instances": [[1,2,3]]}',
        "a signature of a number": b'{"signature_name": 7, "instances": [[1,2,3]]}',
        "a signature that is missing": b'{"signature_name": "gone", "instances": [[1,2,3]]}',
        "another input": b'{"inputs": {"nothing": [[1,2,3]]}}',
        "another shape": b'{"instances": [[1,2,3,4,5]]}',
        "500,000 empty rows": b'{"instances": [' + b"[]," * 500_000 + b"[]]}",
        "a text of 4 MB": b'{"instances": ["' + b"a" * (4 << 20) + b'"]}',
    }
    yield Ask("a sound request", path, b'{"instances": [[1,2,3]]}', (200,))
    for name, content in bad.items():
        yield Ask(name, path, content, (400, 404, 413))
    yield Ask("keys twice", path, b'{"instances": 1, "instances": [[1,2,3]]}', (200, 400))
    for name, other in (("a path", "/v1/models/..%2f..%2fetc:predict"), ("a null",
                        "/v1/models/a%00:predict"),
                        ("half a code", "/v1/models/a%f:predict"), ("nothing", "/"),
                        ("a version of 2^70", f"/v1/models/model/versions/{1 << 70}:predict"),
                        ("a version below zero", "/v1/models/model/versions/-1:predict"),
                        ("a label of a path", "/v1/models/model/labels/..%2f:predict"),
                        ("10,000 letters", f"/v1/models/{'a' * 10_000}:predict"),
                        ("an unknown verb", "/v1/models/model:exec")):  # fmt: skip
        yield Ask(f"an address of {name}", other, b'{"instances": [[1,2,3]]}', (400, 404, 405, 414))


def wires() -> Iterator[Ask]:
    """Yield bytes for the port of REST."""
    post = b"POST /v1/models/model:predict HTTP/1.1\r\nHost: a\r\n"
    made = {
        "garbage": b"\xff" * 1000,
        "zeros": bytes(1000),
        "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(500),
        "a line of 1 MB": b"GET /" + b"a" * (1 << 20),
        "a head of 1 MB": post + b"A: " + b"a" * (1 << 20) + b"\r\n\r\n",
        "100,000 heads": post + b"A: b\r\n" * 100_000 + b"\r\n",
        "a length below zero": post + b"Content-Length: -5\r\n\r\n",
        "a length of 2^70": post + b"Content-Length: %d\r\n\r\n" % (1 << 70),
        "a length of 4 GiB": post + b"Content-Length: %d\r\n\r\n" % (1 << 32),
        "a length of text": post + b"Content-Length: many\r\n\r\n",
        "two lengths": post + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\nabcdef",
        "a length and pieces": post
        + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "a piece of 2^63": post + b"Transfer-Encoding: chunked\r\n\r\n8000000000000000\r\n",
        "a piece of minus one": post + b"Transfer-Encoding: chunked\r\n\r\n-1\r\nabc\r\n",
        "a piece of text": post + b"Transfer-Encoding: chunked\r\n\r\nzz\r\nabc\r\n",
        "gzip of garbage": post + b"Content-Encoding: gzip\r\nContent-Length: 4\r\n\r\nabcd",
        "an unknown version": b"GET / HTTP/9.9\r\n\r\n",
        "an unknown verb": b"EXEC / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n",
        "HTTP/2 without asking": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(100),
        "an upgrade": b"GET / HTTP/1.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n",
        "a null in the address": b"GET /v1/mod\0els/model HTTP/1.1\r\nHost: a\r\n\r\n",
        "a line break in a head": post + b"A: b\n\n\nContent-Length: 1\r\n\r\n",
    }
    import gzip

    bomb = gzip.compress(bytes(100 << 20), 9, mtime=0)
    made["gzip of 100 MiB of zeros"] = (
        post + b"Content-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(bomb) + bomb
    )
    for name, content in made.items():
        yield Ask(f"bytes of {name}", "", content, (0, 400, 404, 405, 411, 413, 414, 415, 417, 431,
                  501,
                                                     503, 505))  # fmt: skip


def asks() -> list[Ask]:
    """Return all requests."""
    from tests.hostile.inferring import infer_texts, inferences

    return [*tensors(), *calls(), *texts(), *wires(), *inferences(), *infer_texts()]


@dataclass
class Answer:
    """What came back."""

    ask: Ask
    code: object
    seconds: float
    grown: int
    faults: list[str] = field(default_factory=list)


class ParsedRequest:
    """A server of one small model that is asked badly."""

    def __init__(self) -> None:
        """Start it."""
        self._root = Path(tempfile.mkdtemp(prefix="hostile-"))
        save(self._root / "model", saved_model())
        self.rest = free_port()
        self.server = Served(self._root / "model", f"--rest_api_port={self.rest}")

    def close(self) -> None:
        """End it."""
        self.server.kill()
        shutil.rmtree(self._root, ignore_errors=True)

    @property
    def alive(self) -> bool:
        """Whether it runs."""
        return self.server.process.poll() is None

    def ask(self, ask: Ask) -> Answer:
        """Send a request, and judge the answer."""
        Path(f"/proc/{self.server.process.pid}/clear_refs").write_text("5")
        before, begun = peak(self.server.process.pid), time.monotonic()
        try:
            code = self._code(ask)
        except OSError as error:
            code = 0 if not ask.target else f"{type(error).__name__}"
        seconds = time.monotonic() - begun
        grown = peak(self.server.process.pid) - before
        answer = Answer(ask, code, seconds, grown)
        if not self.alive:
            answer.faults.append(f"died: {self.server.said[-300:]}")
        elif code not in ask.right:
            answer.faults.append(f"status: {code} instead of {ask.right}")
        if seconds > SECONDS:
            answer.faults.append(f"hang: {seconds:.0f} s")
        if grown > SPARE + 10 * len(ask.content):
            answer.faults.append(f"memory: {grown // MIB} MiB for {len(ask.content)} bytes")
        if "Traceback" in self.server.said:
            answer.faults.append("traceback: in the server's log")
        return answer

    def _code(self, ask: Ask) -> object:
        if not ask.target:
            return self._bytes(ask.content)
        if ask.target.startswith("/"):
            return self._text(ask)
        method = f"/{ask.target}" if "/" in ask.target else PREDICTION + ask.target
        call = self.server.channel.unary_unary(method)
        try:
            call(ask.content, timeout=SECONDS)
        except grpc.RpcError as error:
            return error.code().name
        return "OK"

    def _text(self, ask: Ask) -> object:
        head = (f"POST {ask.target} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n"
                f"Content-Length: {len(ask.content)}\r\n{ask.head}\r\n").encode()  # fmt: skip
        return self._bytes(head + ask.content)

    def _bytes(self, content: bytes) -> int:
        with socket.create_connection(("127.0.0.1", self.rest), timeout=SECONDS) as one:
            one.settimeout(2)  # of those that wait for the rest of what was announced
            with contextlib.suppress(OSError):
                one.sendall(content)
            answer = b""
            with contextlib.suppress(OSError):
                while b"\r\n" not in answer and (piece := one.recv(4096)):
                    answer += piece
            parts = answer.split(b" ")
            return int(parts[1]) if answer.startswith(b"HTTP/") and len(parts) > 1 else 0


def main() -> int:
    """Ask a server everything; 1 if something is wrong."""
    with contextlib.closing(ParsedRequest()) as asked:
        answers = [asked.ask(ask) for ask in asks()]
    for answer in answers:
        for fault in answer.faults:
            print(f"requests/{answer.ask.name} | {answer.ask.target or 'bytes'} | {fault}")
    right = sum(not answer.faults for answer in answers)
    most = max(answer.grown for answer in answers) // MIB
    slowest = max(answer.seconds for answer in answers)
    print(
        f"requests: {len(answers)}, right {right}, most memory {most} MiB, slowest {slowest:.1f} s"
    )
    return int(right < len(answers))


if __name__ == "__main__":
    raise SystemExit(main())
