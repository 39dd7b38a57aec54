"""Hostile requests by the Open Inference Protocol, over gRPC and HTTP."""

import json
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from tests.hostile.asking import BAD, Ask
from tests.hostile.wire import block, number, varint
from tests.serving.infer_messages import infer, tensor_of

SERVICE = "inference.GRPCInferenceService"
INFER, PATH = f"{SERVICE}/ModelInfer", "/v2/models/model/infer"
LENGTH = "Inference-Header-Content-Length"
ROW = np.array([1, 2, 3], np.float32).tobytes()
GONE = ("INVALID_ARGUMENT", "NOT_FOUND")


def request(
    shape: Sequence[int] = (1, 3),
    datatype: str = "FP32",
    name: str = "x",
    model: str = "model",
    raw: bytes | None = None,
    **contents: Sequence[Any],
) -> Any:
    """Return a ModelInferRequest with typed contents, or with raw ones."""
    if raw is None:
        tensor = tensor_of(name, datatype, shape, **(contents or {"fp32_contents": [1, 2, 3]}))
        return infer(tensor, model=model)
    return infer(tensor_of(name, datatype, shape, **contents), model=model, raw=[raw])


def document(content: int | None = None, **tensor: Any) -> bytes:
    """Return a JSON document; with `content`, it says that so many bytes follow it."""
    made: dict[str, Any] = {"name": "x", "datatype": "FP32", "shape": [1, 3]}
    made |= (
        {"data": [1, 2, 3]} if content is None else {"parameters": {"binary_data_size": content}}
    )
    return json.dumps({"inputs": [made | tensor]}).encode()


def inferences() -> Iterator[Ask]:
    """Yield requests over gRPC."""
    good = request(raw=ROW).SerializeToString()
    yield Ask("ModelInfer: a sound request", INFER, good, ("OK",))
    yield Ask("ModelInfer: typed contents", INFER, request().SerializeToString(), ("OK",))
    empty = request((0, 3), raw=b"").SerializeToString()
    yield Ask("ModelInfer: no rows", INFER, empty, ("OK", *BAD))
    bad = {
        "2^40 rows": request((1 << 40, 3), raw=ROW),
        "2^62 x 2^62": request((1 << 62, 1 << 62), raw=ROW),
        "2^62 x 2^62 of typed contents": request((1 << 62, 1 << 62)),
        "2^62 rows of nothing": request((1 << 62, 0), raw=b""),
        "minus one rows": request((-1, 3), raw=ROW),
        "no values": request((1, 3), int_contents=[]),
        "100,000 values": request((1, 3), fp32_contents=[1.0] * 100_000),
        "too short": request(raw=ROW[:-1]),
        "too long": request(raw=ROW + b"\0"),
        "4 MB for 3 numbers": request(raw=bytes(4 << 20)),
        "another shape": request((1, 7), raw=bytes(28)),
        "no dimension": request((), raw=bytes(4)),
        "300 dimensions": request((1,) * 300, raw=bytes(4)),
        "a million dimensions": request((1,) * 1_000_000, raw=bytes(4)),
        "an unknown datatype": request(datatype="x" * 100_000, raw=ROW),
        "no datatype": request(datatype="", raw=ROW),
        "texts": request(datatype="BYTES", raw=b"\0\0\0\0" * 3),
        "texts that are longer than all": request(datatype="BYTES", raw=b"\xff" * 12),
        "2^30 texts": request((1 << 30,), datatype="BYTES", raw=b"\0\0\0\0"),
        "another input": request(name="nothing", raw=ROW),
        "an input with an escape": request(name="\x1b[2J\n", raw=ROW),
        "an input of 100,000 letters": request(name="a" * 100_000, raw=ROW),
        "both contents": request(raw=ROW, fp32_contents=[1, 2, 3]),
    }
    for name, made in bad.items():
        yield Ask(f"ModelInfer: {name}", INFER, made.SerializeToString(), BAD)
    for name, model in (("a path", "../../etc"), ("nothing", ""), ("a null", "a\0b"),
                        ("100,000 letters", "a" * 100_000)):  # fmt: skip
        sent = request(model=model, raw=ROW).SerializeToString()
        yield Ask(f"ModelInfer: a model of {name}", INFER, sent, GONE)
    yield Ask("ModelInfer: 100,000 inputs", INFER, good + block(5, b"") * 100_000, BAD)
    yield Ask("ModelInfer: 100,000 outputs", INFER, good + block(6, b"") * 100_000, BAD)
    yield Ask("ModelInfer: 100,000 contents", INFER, good + block(7, b"") * 100_000, BAD)
    yield Ask("ModelInfer: a version of 10,000 digits", INFER, good + block(2, b"9" * 10_000), GONE)
    parameters = b"".join(block(4, block(1, str(i).encode())) for i in range(100_000))
    yield Ask("ModelInfer: 100,000 parameters", INFER, good + parameters, BAD)
    inner = request(raw=ROW)
    for i in range(50_000):
        inner.inputs[0].parameters[str(i)].bool_param = True
    yield Ask(
        "ModelInfer: 50,000 parameters of an input", INFER, inner.SerializeToString(), ("OK",)
    )
    for method in ("ModelInfer", "ModelReady", "ModelMetadata", "ServerReady"):
        target, right = f"{SERVICE}/{method}", ("OK", "INVALID_ARGUMENT", "NOT_FOUND", "INTERNAL")
        yield Ask(f"{method}: nothing", target, b"", right)
        yield Ask(f"{method}: garbage", target, b"\xff" * 100, right)
        yield Ask(f"{method}: a length beyond the end", target, block(1, b"", 1 << 40), right)
        yield Ask(f"{method}: groups 5,000 deep", target, varint(99 << 3 | 3) * 5_000, right)
        yield Ask(f"{method}: 5 MB of empty fields", target, b"\xa2\x0c\x00" * 1_700_000, right)
        yield Ask(f"{method}: a number for a name", target, number(1, 7), right)


def infer_texts() -> Iterator[Ask]:
    """Yield requests over HTTP."""
    yield Ask("infer: a sound document", PATH, document(), (200,))
    binary = document(12)
    yield Ask(
        "infer: sound binary data", PATH, binary + ROW, (200,), f"{LENGTH}: {len(binary)}\r\n"
    )
    bad = {
        "nothing": b"", "no inputs": b"{}", "inputs of null": b'{"inputs": null}',
        "500,000 inputs": b'{"inputs": [' + b"{}," * 500_000 + b"{}]}",
        "500,000 outputs": document()[:-1] + b', "outputs": [' + b"{}," * 500_000 + b"{}]}",
        "2^40 rows": document(shape=[1 << 40, 3]), "2^62 x 2^62": document(shape=[1 << 62] * 2),
        "2^70 rows": document(shape=[1 << 70, 3]), "minus one rows": document(shape=[-1, 3]),
        "a million dimensions": document(shape=[1] * 1_000_000),
        "no shape": document(shape=None), "a shape of texts": document(shape=["1", "3"]),
        "ragged data": document(data=[[1, 2], [3]]), "data of texts": document(data=["a"] * 3),
        "data of objects": document(data=[{"a": 1}] * 3),
        "100,000 values": document(data=[1] * 100_000),
        "a number of 1e999": document().replace(b"[1, 2, 3]", b"[1e999, 2, 3]"),
        "lists 100,000 deep": document().replace(b"[1, 2, 3]", b"[" * 100_000 + b"]" * 100_000),
        "a name of a megabyte": document(name="a" * (1 << 20)),
        "an id of a megabyte": document()[:-1] + b', "id": "' + b"a" * (1 << 20) + b'"}',
        "binary data that is missing": binary,
        "2^62 bytes of binary data": document(1 << 62),
        "minus one bytes of binary data": document(-1),
    }  # fmt: skip
    for name, content in bad.items():
        yield Ask(f"infer: {name}", PATH, content, (400,))
    sound = f"{LENGTH}: {len(binary)}\r\n"
    for length in ("-1", "0", "many", "9" * 5_000, f"{len(binary) + 13}", "1", "+5", "0x10", ""):
        head = f"{LENGTH}: {length}\r\n"
        yield Ask(f"infer: a document of {length[:20]} bytes", PATH, binary + ROW, (400,), head)
    yield Ask("infer: two lengths of the document", PATH, binary + ROW, (200, 400), sound * 2)
    for name, content in (("too short", ROW[:-1]), ("too long", bytes(4 << 20))):
        yield Ask(f"infer: binary data that is {name}", PATH, binary + content, (400,), sound)
    models = {
        "a path": "..%2f..%2fetc", "a null": "a%00", "half a code": "a%f", "nothing": "",
        "a version of 2^70": f"model/versions/{1 << 70}", "10,000 letters": "a" * 10_000,
        "a version of 5,000 digits": f"model/versions/{'9' * 5000}",
        "10,000 parts": "a/" * 10_000,
    }  # fmt: skip
    for name, model in models.items():
        path = f"/v2/models/{model}/infer"
        yield Ask(f"infer: an address of {name}", path, document(), (400, 404, 414))
