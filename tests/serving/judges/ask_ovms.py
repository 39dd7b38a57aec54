"""Asks a server with ovmsclient, in an environment that has it: ask_ovms.py grpc|http ADDRESS."""

import json
import sys

import numpy as np
import ovmsclient
from ovmsclient.tfs_compat.base.errors import ModelServerError

transport, address = sys.argv[1:]
make = ovmsclient.make_grpc_client if transport == "grpc" else ovmsclient.make_http_client
client = make(address)
INPUTS = {"x": np.array([[2.0], [4.0]], np.float32)}


def failed(act, *arguments):
    try:
        act(*arguments)
    except ModelServerError as error:
        return type(error).__name__, str(error)
    return None


name = "half_plus_two"
answers = {
    "status": client.get_model_status(name, 123),
    "metadata": client.get_model_metadata(name, 123),
    "predict": client.predict(INPUTS, name, 123).tolist(),
    "default version": client.predict(INPUTS, name).tolist(),
    "default status": client.get_model_status(name),
    "another model": failed(client.predict, INPUTS, "m", 123),
    "another alias": failed(client.predict, {"z": INPUTS["x"]}, name, 123),
}
json.dump(answers, sys.stdout)
