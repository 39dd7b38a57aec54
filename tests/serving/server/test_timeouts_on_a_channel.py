"""Requests of many threads on one channel that all time out: the server does not reset any."""

import threading
import time
from collections import Counter

import grpc
import pytest

from tests.serving.official_stubs import PredictionServiceStub
from tests.serving.served import Served
from tests.serving.server.test_http2_floods import PRIVATE, codes
from tests.serving.server.test_server import half
from tests.serving.small_models import half_plus

THREADS, SECONDS = 100, 6
LARGE = 400_000  # numbers: 1.6 MB


@pytest.mark.slow
def test_requests_that_time_out_get_deadline_exceeded_only(tmp_path):
    server = Served(half_plus(tmp_path / "half_plus_two", 2))
    request, found = half(), Counter()
    request.inputs["x"].Clear()
    request.inputs["x"].dtype = 1
    request.inputs["x"].tensor_shape.dim.add(size=LARGE)
    request.inputs["x"].tensor_content = bytes(4 * LARGE)
    end = time.monotonic() + SECONDS

    def call(stub):
        while time.monotonic() < end:
            try:
                stub.Predict(request, timeout=0.1)
            except grpc.RpcError as error:
                found[error.code().name] += 1

    try:
        with grpc.insecure_channel(server.address, PRIVATE) as channel:
            stub = PredictionServiceStub(channel)
            threads = [threading.Thread(target=call, args=(stub,)) for _ in range(THREADS)]
            for thread in threads:
                thread.start()
            others = codes(server.address, 50)
            for thread in threads:
                thread.join(30)
    finally:
        server.kill()
    assert set(found) == {"DEADLINE_EXCEEDED"}, found
    assert set(others) == {"OK"}, others
