"""Callers in a process of their own, which ignore health and call on and on until they are told."""

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]
CODE = """
import collections, http.client, json, sys, threading, time
import grpc
from deploykit.serving.protocol.protos import GetModelStatusRequest
from tests.serving.official_stubs import ModelServiceStub, PredictionServiceStub
from tests.serving.server.test_server import half

kind, host, authority = sys.argv[1:]
OPTIONS = [("grpc.use_local_subchannel_pool", 1)]
ASK = GetModelStatusRequest()
ASK.model_spec.name = "nobody"
seen, over, lock = collections.Counter(), threading.Event(), threading.Lock()

def channel():
    if not authority:
        return grpc.insecure_channel(host, OPTIONS)
    certificate = open(authority, "rb").read()
    return grpc.secure_channel(host, grpc.ssl_channel_credentials(certificate), OPTIONS)

def call_grpc():
    mine, connected, request = collections.Counter(), channel(), half()
    while not over.is_set():
        if kind == "status":
            call = ModelServiceStub(connected).GetModelStatus.future(ASK, timeout=30)
        else:
            call = PredictionServiceStub(connected).Predict.future(request, timeout=30)
        code = call.code().name
        mine[code] += 1
        if code == "UNAVAILABLE":  # a new channel connects at once
            connected.close()
            connected = channel()
    with lock:
        seen.update(mine)

def call_rest():
    mine, connection = collections.Counter(), None
    while not over.is_set():
        connection = connection or http.client.HTTPConnection(host, timeout=30)
        try:
            connection.request("GET", "/v1/models/nobody")
            response = connection.getresponse()
            response.read()
            mine[str(response.status)] += 1
            if not response.will_close:
                continue
        except (ConnectionError, http.client.RemoteDisconnected):
            mine["closed"] += 1
            time.sleep(0.001)
        except Exception as error:
            mine[repr(error)] += 1
        connection.close()
        connection = None
    with lock:
        seen.update(mine)

threads = [threading.Thread(target=call_rest if kind == "rest" else call_grpc) for _ in range(8)]
for each in threads:
    each.start()
print("calling", flush=True)
sys.stdin.readline()
over.set()
for each in threads:
    each.join()
print(json.dumps(seen))
"""


class Callers:
    """Eight of them; `kind` is status, predict or rest."""

    def __init__(self, kind: str, host: str, authority: str = "") -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", CODE, kind, host, authority],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT,
        )  # fmt: skip
        assert self._process.stdout.readline() == "calling\n"

    def end(self) -> dict[str, int]:
        """Return how often each answer came."""
        text, _ = self._process.communicate("end\n", timeout=90)
        return json.loads(text)

    def kill(self) -> None:
        self._process.kill()
        self._process.communicate()
