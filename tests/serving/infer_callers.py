"""The five forms of ModelInfer: gRPC raw and typed, HTTP with flat, nested and binary data."""

import http.client
import json
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

import grpc
import numpy as np

from deploykit.serving.protocol.open_inference import TYPES
from deploykit.transforms.ir.protos import private_messages
from deploykit.transforms.ir.tensors import numpy_type
from tests.serving.infer_messages import infer, raw_of, values_of, with_tensor
from tests.serving.served import Served

SERVICE = "/inference.GRPCInferenceService/"
FORMS = ("raw", "typed", "flat", "nested", "binary")
LENGTH = "Inference-Header-Content-Length"
Tensors = Mapping[str, tuple[str, Any]]


@dataclass
class Answer:
    """What came back, whatever the form."""

    code: str | int
    message: str = ""
    model: str = ""
    version: str = ""
    id: str = ""
    outputs: dict[str, tuple[str, np.ndarray]] = field(default_factory=dict)


def array_of(datatype: str, value: Any) -> np.ndarray:
    """Return nested lists as an array of a datatype."""
    return np.array(value, numpy_type(TYPES[datatype]))


def message(name: str) -> Any:
    """Return the class of a message of the service."""
    return private_messages("inference", [name])[name]


def ask(server: Served, method: str, seconds: float = 30, **fields: Any) -> Any:
    """Call a method of gRPC; return its answer. RpcError: it was refused."""
    request = message(f"{method}Request")(**fields).SerializeToString()
    read = message(f"{method}Response").FromString
    call = server.channel.unary_unary(SERVICE + method, response_deserializer=read)
    return call(request, timeout=seconds)


def http_ask(
    server: Served, method: str, path: str, body: bytes | None = None, **headers: str
) -> tuple[int, Any, Mapping[str, str]]:
    """Return status, body and headers of an answer over HTTP; JSON is decoded."""
    port = server.document["rest_api_port"]
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=60)) as connection:
        named = {key.replace("_", "-"): value for key, value in headers.items()}
        connection.request(method, path, body, named)
        response = connection.getresponse()
        content = response.read()
    found = {key.lower(): value for key, value in response.getheaders()}
    if found["content-type"] == "application/json" and content:
        content = json.loads(content)
    return response.status, content, found


def request_of(
    model: str, inputs: Tensors, outputs: Sequence[str], raw: bool, parameters: Mapping[str, str],
    **fields: str,
) -> Any:  # fmt: skip
    """Return a ModelInferRequest."""
    request = infer(model=model, **fields)
    for name, (datatype, value) in inputs.items():
        with_tensor(request, name, datatype, array_of(datatype, value), raw)
    for name in outputs:
        request.outputs.add(name=name)
    for name, text in parameters.items():
        request.parameters[name].string_param = text
    return request


def document_of(
    form: str, inputs: Tensors, outputs: Sequence[str], parameters: Mapping[str, Any],
    **fields: str,
) -> tuple[bytes, bytes]:  # fmt: skip
    """Return a document and the binary data behind it."""
    tensors, content = [], b""
    for name, (datatype, value) in inputs.items():
        array = array_of(datatype, value)
        made: dict[str, Any] = {"name": name, "datatype": datatype, "shape": list(array.shape)}
        if form == "binary":
            made["parameters"] = {"binary_data_size": len(raw_of(array))}
            content += raw_of(array)
        else:
            texts = array if array.dtype != object else _texts(array)
            made["data"] = (texts.reshape(-1) if form == "flat" else texts).tolist()
        tensors.append(made)
    document: dict[str, Any] = {**fields, "inputs": tensors, "parameters": dict(parameters)}
    if form == "binary":
        document["parameters"]["binary_data_output"] = True
    if outputs:
        document["outputs"] = [{"name": name} for name in outputs]
    return json.dumps(document).encode(), content


class Caller:
    """Calls ModelInfer in one of the forms."""

    def __init__(self, server: Served, form: str) -> None:
        self.server, self.form = server, form
        self.is_grpc = form in ("raw", "typed")

    def infer(
        self, model: str, inputs: Tensors, outputs: Sequence[str] = (), version: str = "",
        parameters: Mapping[str, str] | None = None, **fields: str,
    ) -> Answer:  # fmt: skip
        """Call it; a refusal is an answer as well."""
        if self.is_grpc:
            request = request_of(model, inputs, outputs, self.form == "raw", parameters or {},
                                 model_version=version, **fields)  # fmt: skip
            return self.send(request)
        text, content = document_of(self.form, inputs, outputs, parameters or {}, **fields)
        more = {LENGTH: str(len(text))} if self.form == "binary" else {}
        path = f"/v2/models/{model}{f'/versions/{version}' if version else ''}/infer"
        return answer_of(*http_ask(self.server, "POST", path, text + content, **more))

    def send(self, request: Any) -> Answer:
        """Send a message of gRPC."""
        read = message("ModelInferResponse").FromString
        path = SERVICE + "ModelInfer"
        call = self.server.channel.unary_unary(path, response_deserializer=read)
        try:
            found = call(request.SerializeToString(), timeout=60)
        except grpc.RpcError as error:
            return Answer(error.code().name, error.details())
        outputs = {}
        assert bool(found.raw_output_contents) == (self.form == "raw")
        for number, each in enumerate(found.outputs):
            if found.raw_output_contents:
                array = _from_raw(each.datatype, found.raw_output_contents[number])
            else:
                array = array_of(each.datatype, values_of(each))
            outputs[each.name] = each.datatype, array.reshape(tuple(each.shape))
        return Answer("OK", "", found.model_name, found.model_version, found.id, outputs)


def answer_of(status: int, body: Any, headers: Mapping[str, str]) -> Answer:
    """Return what an answer over HTTP says."""
    if status != 200:
        return Answer(status, body["error"])
    content = b""
    if LENGTH.lower() in headers:
        assert headers["content-type"] == "application/octet-stream"
        length = int(headers[LENGTH.lower()])
        body, content = json.loads(body[:length]), body[length:]
    outputs = {}
    for each in body["outputs"]:
        if size := each.get("parameters", {}).get("binary_data_size", 0):
            array = _from_raw(each["datatype"], content[:size])
            content = content[size:]
        elif each["datatype"] == "BYTES":
            array = array_of("BYTES", [text.encode() for text in each.get("data", [])])
        else:
            array = array_of(each["datatype"], each.get("data", []))
        outputs[each["name"]] = each["datatype"], array.reshape(each["shape"])
    assert not content
    return Answer("OK", "", body["model_name"], body["model_version"], body.get("id", ""), outputs)


def _from_raw(datatype: str, content: bytes) -> np.ndarray:
    if datatype != "BYTES":
        return np.frombuffer(content, numpy_type(TYPES[datatype]))
    found = []
    while content:
        size = int.from_bytes(content[:4], "little")
        found.append(content[4 : 4 + size])
        content = content[4 + size :]
    return np.array(found, object)


def _texts(array: np.ndarray) -> np.ndarray:
    texts = np.empty(array.size, object)
    texts[:] = [each.decode() for each in array.reshape(-1).tolist()]
    return texts.reshape(array.shape)
