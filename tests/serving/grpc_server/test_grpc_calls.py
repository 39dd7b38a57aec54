"""The one handler of all methods: what it lets in, what it refuses, and what it writes down."""

import contextlib
import threading
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import grpc
import pytest

from deploykit.serving.grpc_server import grpc_calls
from deploykit.serving.grpc_server.grpc_calls import (
    ENDING,
    UNCHECKED_BYTES,
    GrpcCall,
    GrpcCalls,
    Method,
    parsed,
)
from deploykit.serving.grpc_server.threads import CallThreads
from deploykit.serving.protocol.errors import ServingError
from deploykit.serving.protocol.protos import PredictRequest
from tests.support import raises, shows
from tests.waiting import until

IN_FLIGHT = 2


@pytest.fixture
def served() -> Iterator[SimpleNamespace]:
    going, log = threading.Event(), []

    def compute(request: bytes, call: GrpcCall) -> bytes:
        call.model = request.decode()
        going.wait(30)
        return request[::-1]

    def fail(request: bytes, call: GrpcCall) -> bytes:
        raise ServingError("NOT_FOUND", "no such thing") if request else ZeroDivisionError("by 0")

    def watch(request: bytes, call: GrpcCall, send: Callable[[bytes | None], None]) -> None:
        for each in (request, request, None):
            send(each)

    threads = CallThreads(IN_FLIGHT, patience=0, arriving=IN_FLIGHT)
    methods = {
        "/s/Compute": Method(compute, computes=True),
        "/s/Ask": Method(lambda request, _: request),
        "/s/Fail": Method(fail),
        "/s/Probe": Method(lambda request, _: request, threads=CallThreads(1, "probe")),
        "/s/Watch": Method(watch, watches=True),
    }
    calls = GrpcCalls(threads, methods, lambda *line: log.append(line))
    server = grpc.server(threads, handlers=[calls])
    channel = grpc.insecure_channel(f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}")
    server.start()
    yield SimpleNamespace(
        calls=calls,
        threads=threads,
        log=log,
        going=going,
        channel=channel,
        ask=lambda name, request=b"ab": channel.unary_unary(f"/s/{name}").future(
            request, timeout=30
        ),
    )
    going.set()
    channel.close()
    server.stop(None)


@contextlib.contextmanager
def stalled(served, name: str) -> Iterator[grpc.Future]:
    """Begin a call that never sends its request."""
    end = threading.Event()

    def requests() -> Iterator[bytes]:
        end.wait()
        yield from ()

    try:
        yield served.channel.stream_unary(f"/s/{name}").future(requests(), timeout=20)
    finally:
        end.set()


def lines(served, count: int) -> list[tuple[Any, ...]]:
    """Return method, code, model and bytes of each call that was logged."""
    until(lambda: len(served.log) == count)
    assert all(peer.startswith("ipv4:127.0.0.1:") for _, peer, *_ in served.log)
    return [(method, *rest[:1], *rest[2:]) for method, _, *rest in served.log]


def test_a_request_of_empty_parts_is_refused_before_it_takes_a_hundred_times_its_size():
    with raises(ServingError, "message-too-large") as caught:
        parsed(PredictRequest, b"\x12\x00" * 1_000_000)
    assert caught.value.status == "INVALID_ARGUMENT"


def test_a_request_of_more_fields_than_can_be_checked_is_refused(monkeypatch):
    request = PredictRequest()
    request.inputs["x"].string_val.extend([b"abc"] * 200_000)
    content = request.SerializeToString()
    fields = 200_000 + 3  # the input, its alias and its tensor
    monkeypatch.setattr(grpc_calls, "MAX_FIELDS", fields)
    assert parsed(PredictRequest, content) == request
    monkeypatch.setattr(grpc_calls, "MAX_FIELDS", fields - 1)
    with raises(ServingError, "fields-too-many", most=fields - 1):
        parsed(PredictRequest, content)


def test_a_large_request_of_many_values_is_parsed():
    request = PredictRequest()
    request.inputs["x"].string_val.extend([b"abc"] * 200_000)
    content = request.SerializeToString()
    assert len(content) > UNCHECKED_BYTES
    assert parsed(PredictRequest, content) == request


@pytest.mark.parametrize("count", [9, UNCHECKED_BYTES])
def test_what_is_no_message_is_an_internal_error(count):
    """As in TensorFlow Serving, whatever its size."""
    with raises(ServingError, "request-not-deserialized") as caught:
        parsed(PredictRequest, b"\xff" * (count + 1))
    assert caught.value.status == "INTERNAL"


def test_bytes_are_answered_and_logged(served):
    served.going.set()
    assert served.ask("Compute").result() == b"ba"
    assert served.ask("Compute", b"").result() == b""
    assert served.ask("Probe").result() == b"ab"
    assert lines(served, 3) == [
        ("Compute", "OK", "ab", 2), ("Compute", "OK", "", 0), ("Probe", "OK", "", 2)
    ]  # fmt: skip


def test_what_is_raised_becomes_a_status(served):
    for request, code, words in (
        (b"ab", grpc.StatusCode.NOT_FOUND, "no such thing"),
        (b"", grpc.StatusCode.INTERNAL, "ZeroDivisionError: by 0"),
    ):
        call = served.ask("Fail", request)
        assert (call.code(), call.details()) == (code, words)
    assert lines(served, 2) == [("Fail", "NOT_FOUND", "", 2), ("Fail", "INTERNAL", "", 0)]


def test_a_stream_sends_what_it_likes_and_is_not_logged(served):
    call = served.channel.unary_stream("/s/Watch")(b"x", timeout=30)
    assert list(call) == [b"x", b"x"]
    assert served.log == []


def test_a_method_that_is_not_there(served):
    assert served.ask("Other").code() is grpc.StatusCode.UNIMPLEMENTED


def test_calls_beyond_the_bound_are_refused_by_their_headers(served):
    calls = [served.ask("Compute") for _ in range(IN_FLIGHT)]
    until(lambda: served.threads.arrived == IN_FLIGHT)
    with stalled(served, "Compute") as refused:  # its request is not waited for
        assert refused.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert shows(refused.details(), "too-many-calls", in_flight=2)
    assert lines(served, 1) == [("Compute", "RESOURCE_EXHAUSTED", "", None)]
    assert served.ask("Ask").result() == b"ab"  # computes nothing
    assert served.ask("Probe").result() == b"ab"
    served.going.set()
    assert [call.result() for call in calls] == [b"ba"] * IN_FLIGHT
    until(lambda: served.calls.in_flight == 0)


def test_a_call_whose_request_does_not_come_makes_room(served):
    with contextlib.ExitStack() as stack:
        waiting = [stack.enter_context(stalled(served, "Compute")) for _ in range(IN_FLIGHT)]
        until(lambda: served.calls.arriving == IN_FLIGHT)
        served.going.set()
        until(lambda: served.ask("Compute").code() is grpc.StatusCode.OK)
        ended = [call for call in waiting if call.done()]
        assert {call.code() for call in ended} == {grpc.StatusCode.UNAVAILABLE}
        assert all(shows(call.details(), "request-too-slow") for call in ended)
    ended = ("Compute", "UNAVAILABLE", "", None)
    until(lambda: lines(served, len(served.log)).count(ended) >= 1)


def test_a_call_that_brings_no_request(served):
    call = served.channel.stream_unary("/s/Compute").future(iter(()), timeout=30)
    assert call.code() is grpc.StatusCode.UNIMPLEMENTED
    assert lines(served, 1) == [("Compute", "UNIMPLEMENTED", "", None)]


def test_a_server_that_ends_refuses_what_comes_and_answers_what_is_there(served):
    begun = served.ask("Compute")
    until(lambda: served.calls.in_flight == 1)
    last = served.calls.last_began
    assert served.ask("Probe").result() == b"ab"
    assert served.calls.last_began == last  # a probe is no sign that somebody still calls
    served.calls.closing = True
    for name in ("Compute", "Ask"):
        with stalled(served, name) as refused:
            assert (refused.code(), refused.details()) == (grpc.StatusCode.UNAVAILABLE, ENDING)
    assert served.calls.last_began > last
    assert served.ask("Probe").result() == b"ab"
    served.going.set()
    assert begun.result() == b"ba"


class _Stalled:
    """A call of a gRPC without the private method that ends a call with a status."""

    def __init__(self, **attributes: object) -> None:
        vars(self).update(attributes)
        self.is_cancelled = threading.Event()
        self.cancel = self.is_cancelled.set

    def requests(self) -> Iterator[bytes]:
        self.is_cancelled.wait(10)
        yield from ()


@pytest.mark.parametrize("attributes", [{}, {"_rpc_event": SimpleNamespace(call=None)}])
def test_a_stalled_call_ends_without_the_private_method_of_grpc(attributes):
    threads, context = CallThreads(IN_FLIGHT), _Stalled(**attributes)
    result = threads.submit(threads.awaited, context.requests(), context)
    until(lambda: threads.waiting())
    threads.end(context)
    assert context.is_cancelled.is_set()
    with raises(ServingError, "request-too-slow"):
        result.result(10)


def test_calls_wait_for_a_thread_unless_stalled_ones_have_them_all():
    """Clients that reset many calls leave them in the queue: honest calls wait behind them."""
    threads, blocked = CallThreads(1, patience=0, arriving=2), threading.Event()
    count = threads._max_workers + 20  # more than there are threads
    results = [threads.submit(blocked.wait, 10) for _ in range(count)]
    threads.check_free(computing=True)
    stalled = [_Stalled(), _Stalled()]
    blocked.set()
    for result in results:
        result.result(10)
    ending = [threads.submit(threads.awaited, each.requests(), each) for each in stalled]
    until(lambda: threads.arriving == 2)
    threads.submit(lambda: None)
    threads.free_queued()
    until(lambda: any(each.is_cancelled.is_set() for each in stalled))
    for each in stalled:
        each.cancel()
    for result in ending:
        result.exception(10)
