"""Asks a server with the SDK of KServe: ask_kserve.py grpc|http ADDRESS; writes JSON."""

import asyncio
import json
import sys

import numpy as np
from kserve import (
    InferenceGRPCClient,
    InferenceRESTClient,
    InferInput,
    InferRequest,
    InferResponse,
    RESTConfig,
)
from kserve.protocol.infer_type import RequestedOutput

transport, address = sys.argv[1:]
TYPES = {"BOOL": np.bool_, "UINT8": np.uint8, "UINT16": np.uint16, "UINT32": np.uint32,
         "UINT64": np.uint64, "INT8": np.int8, "INT16": np.int16, "INT32": np.int32,
         "INT64": np.int64, "FP32": np.float32, "FP64": np.float64, "BYTES": object}  # fmt: skip


def value(datatype):
    """Two rows of a datatype."""
    if datatype == "BYTES":
        return np.array([[b"", b"a"], ["größer".encode(), b"x" * 300]], object)
    dtype = np.dtype(TYPES[datatype])
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        return np.array([[limits.min, limits.max], [1, 2]], dtype)
    return np.array([[0, 1], [1, 0]] if dtype.kind == "b" else [[0.5, -2], [3, 1e4]], dtype)


def tensor(name, datatype, array, binary):
    made = InferInput(name, list(array.shape), datatype)
    made.set_data_from_numpy(array, binary_data=binary)
    return made


def plain(array):
    """Nested lists; the client makes texts of some bytes."""
    return [
        [item.encode() if isinstance(item, str) else item for item in row] for row in array.tolist()
    ]


class Client:
    """Either client by the same methods."""

    def __init__(self):
        self.is_grpc = transport == "grpc"
        self.sdk = (
            InferenceGRPCClient(address)
            if self.is_grpc
            else InferenceRESTClient(RESTConfig(protocol="v2"))
        )
        self.base = () if self.is_grpc else (f"http://{address}",)

    async def ask(self, method, *arguments):
        return await getattr(self.sdk, method)(*self.base, *arguments)

    async def infer(self, model, inputs, version="", **options):
        request = InferRequest(model, inputs, **options)
        if self.is_grpc:
            request.model_version = version
            return await self.sdk.infer(request)
        # The client has no versions, but its path may have one.
        path = f"{model}/versions/{version}" if version else model
        return await self.sdk.infer(*self.base, request, model_name=path)


async def main():
    client = Client()
    answers = {
        "live": await client.ask("is_server_live"),
        "ready": await client.ask("is_server_ready"),
        "models": [await client.ask("is_model_ready", each)
                   for each in ("echo", "half_plus_two", "nobody")],
    }  # fmt: skip
    swapped = {"signature_name": "swapped"}
    for binary in (True, False):
        arrays = {each: value(each) for each in TYPES}
        inputs = [tensor(each.lower(), each, array, binary) for each, array in arrays.items()]
        outputs = None if client.is_grpc else [
            RequestedOutput(f"{each.lower()}_out", {"binary_data": binary}) for each in TYPES
        ]  # fmt: skip
        found: InferResponse = await client.infer(
            "echo", inputs, request_id="r 1", parameters={"signature_name": "typed"},
            request_outputs=outputs,
        )  # fmt: skip
        answers[f"same {binary}"] = {
            each: plain(found.get_output_by_name(f"{each.lower()}_out").as_numpy()) == plain(array)
            for each, array in arrays.items()
        }
        answers[f"id {binary}"] = found.id
        half = tensor("x", "FP32", np.array([[2.0], [4.0]], np.float32), binary)
        for version in ("", "123"):
            found = await client.infer("half_plus_two", [half], version)
            answers[f"half {version} {binary}"] = found.outputs[0].as_numpy().tolist()
        pair = tensor("x", "FP32", np.array([[1, 2]], np.float32), binary)
        found = await client.infer("echo", [pair], parameters=swapped)
        answers[f"swapped {binary}"] = found.outputs[0].as_numpy().tolist()
    errors = {
        "model": ("nobody", half, ""), "version": ("half_plus_two", half, "7"),
        "input": ("half_plus_two", tensor("z", "FP32", np.zeros((1, 1), np.float32), True), ""),
    }  # fmt: skip
    for name, (model, given, version) in errors.items():
        try:
            await client.infer(model, [given], version)
        except Exception as error:
            answers[f"wrong {name}"] = str(error)
    await client.sdk.close()
    json.dump(answers, sys.stdout)


asyncio.run(main())
