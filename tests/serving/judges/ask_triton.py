"""Asks a server with tritonclient: ask_triton.py grpc|http sync|async ADDRESS.

It writes what it gets as JSON; `echo` is the model of echo_model.py, `half_plus_two` the usual one.
"""

import asyncio
import importlib
import inspect
import json
import sys

import ml_dtypes
import numpy as np
from tritonclient.utils import InferenceServerException

transport, style, address = sys.argv[1:]
triton = importlib.import_module(f"tritonclient.{transport}")
clients = triton if style == "sync" else importlib.import_module(f"tritonclient.{transport}.aio")

TYPES = {"BOOL": np.bool_, "UINT8": np.uint8, "UINT16": np.uint16, "UINT32": np.uint32,
         "UINT64": np.uint64, "INT8": np.int8, "INT16": np.int16, "INT32": np.int32,
         "INT64": np.int64, "FP16": np.float16, "FP32": np.float32, "FP64": np.float64,
         "BYTES": np.object_, "BF16": ml_dtypes.bfloat16}  # fmt: skip


def value(datatype):
    """Two rows of a datatype, with its largest number where that is one."""
    dtype = np.dtype(TYPES[datatype])
    if dtype == np.object_:
        return np.array([[b"", b"\x00\xff bytes"], ["größer".encode(), b"x" * 300]], object)
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        return np.array([[limits.min, limits.max], [1, 2]], dtype)
    return np.array([[0, 1], [1, 0]] if dtype.kind == "b" else [[0.5, -2], [3, 1e4]], dtype)


def tensor(name, datatype, array, **options):
    made = triton.InferInput(name, list(array.shape), datatype)
    made.set_data_from_numpy(array, **options)
    return made


async def called(call, *arguments, **options):
    try:
        found = call(*arguments, **options)
        return await found if inspect.isawaitable(found) else found
    except InferenceServerException as error:
        return {"status": error.status(), "message": error.message()}


def described(found):
    if transport == "http" or isinstance(found, dict):
        return found
    from google.protobuf.json_format import MessageToDict

    return MessageToDict(found, preserving_proto_field_name=True)


async def main():
    client = clients.InferenceServerClient(address)
    numbers = {each: value(each) for each in TYPES}
    inputs = [tensor(each.lower(), each, array) for each, array in numbers.items()]
    answers = {
        "live": await called(client.is_server_live),
        "ready": await called(client.is_server_ready),
        "model ready": await called(client.is_model_ready, "echo"),
        "version ready": await called(client.is_model_ready, "echo", "1"),
        "another model ready": await called(client.is_model_ready, "nobody"),
        "another version ready": await called(client.is_model_ready, "echo", "9"),
        "server": described(await called(client.get_server_metadata)),
        "model": described(await called(client.get_model_metadata, "half_plus_two")),
    }
    result = await called(client.infer, "echo", inputs, request_id="r 1")
    answers["same"] = {
        each: bool(np.array_equal(result.as_numpy(f"{each.lower()}_out"), array))
        for each, array in numbers.items()
    }
    response = result.get_response()
    answers["id"] = response["id"] if isinstance(response, dict) else response.id

    half = tensor("x", "FP32", np.array([[2.0], [4.0]], np.float32))
    wanted = [triton.InferRequestedOutput("y")]
    result = await called(client.infer, "half_plus_two", [half], "123", outputs=wanted)
    answers["half"] = result.as_numpy("y").tolist()
    result = await called(
        client.infer, "echo", [tensor("x", "FP32", np.array([[1, 2]], np.float32))],
        parameters={"signature_name": "swapped", "unknown": 1}, priority=1, timeout=1_000_000,
    )  # fmt: skip
    answers["swapped"] = result.as_numpy("y").tolist()
    empty = tensor("x", "FP32", np.zeros((0, 1), np.float32))
    answers["empty"] = list(
        (await called(client.infer, "half_plus_two", [empty])).as_numpy("y").shape
    )

    wrong = tensor("x", "INT32", np.zeros((1, 1), np.int32))
    answers["wrong datatype"] = await called(client.infer, "half_plus_two", [wrong])
    wrong = tensor("x", "FP32", np.zeros((1, 7), np.float32))
    swapped = {"signature_name": "swapped"}
    answers["wrong shape"] = await called(client.infer, "echo", [wrong], parameters=swapped)
    wrong = tensor("z", "FP32", np.zeros((1, 1), np.float32))
    answers["wrong name"] = await called(client.infer, "half_plus_two", [wrong])
    answers["wrong output"] = await called(
        client.infer, "half_plus_two", [half], outputs=[triton.InferRequestedOutput("q")]
    )
    answers["wrong model"] = await called(client.infer, "nobody", [half])
    answers["wrong version"] = await called(client.infer, "half_plus_two", [half], "7")
    if transport == "http":
        as_json = [tensor("x", "FP32", np.array([[1, 2]], np.float32), binary_data=False)]
        result = await called(
            client.infer, "echo", as_json,
            outputs=[triton.InferRequestedOutput("y", binary_data=False)],
            parameters={"signature_name": "swapped"},
        )  # fmt: skip
        answers["json"] = result.as_numpy("y").tolist()
        result = await called(
            client.infer, "half_plus_two", [half], request_compression_algorithm="gzip"
        )
        answers["gzip"] = result.as_numpy("y").tolist()
    answer = client.close()
    if inspect.isawaitable(answer):
        await answer
    json.dump(answers, sys.stdout)


asyncio.run(main())
