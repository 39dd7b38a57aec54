"""A port that answers HTTP: whole requests however they arrive, and nobody for longer than fair."""

import http.client
import re
import socket
import threading
import time
from contextlib import closing, contextmanager
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deploykit.serving.rest.http_requests import HttpLimits, Parser, Request
from deploykit.serving.rest.listener import Listener, Response
from deploykit.transforms.common.errors import Error
from tests.support import raises, says
from tests.waiting import until

POST = b"POST /a HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nabc"
CHUNKED = (
    b"POST /b HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n"
    b"2\r\nde\r\n1;x=y\r\nf\r\n0\r\nT: v\r\n\r\n"
)
GET = b"GET /c HTTP/1.1\r\nHost: h\r\nUpgrade: h2c\r\nConnection: Upgrade\r\n\r\n"
NOT_HTTP = says("not-http").encode()
SHORT = HttpLimits(body=1000, head=500, connections=3, patience=0.3, rate=100_000, idle=0.3)


def echo(request: Request) -> Response:
    return Response(200, f"{request.method} {request.target} ".encode() + request.body)


@contextmanager
def listening(answer=echo, limits=HttpLimits()):  # noqa: B008
    listener = Listener(answer, limits=limits)
    listener.start()
    try:
        yield listener
    finally:
        listener.close()


def connect(listener) -> socket.socket:
    return socket.create_connection(("127.0.0.1", listener.port), timeout=20)


def talk(listener, data: bytes) -> bytes:
    """Send bytes, and return all that comes until the other side closes."""
    with closing(connect(listener)) as client:
        client.sendall(data)
        return until_closed(client)


def until_closed(client: socket.socket) -> bytes:
    found = b""
    while data := client.recv(65536):
        found += data
    return found


def parsed(data: bytes, *cuts: int) -> list[tuple]:
    """Return what a parser makes of bytes that arrive in pieces."""
    parser = Parser(HttpLimits())
    places = [0, *sorted(cuts), len(data)]
    for start, end in pairwise(places):
        parser.feed(data[start:end])
    assert parser.error is None
    return [(r.method, r.target, r.headers, r.body, r.keep_alive) for r in parser.requests]


@pytest.mark.sampled
@given(st.permutations([POST, CHUNKED, GET]), st.data())
def test_requests_are_the_same_however_they_are_cut(order, data):
    text = b"".join(order)
    cuts = data.draw(st.lists(st.integers(0, len(text)), max_size=8))
    found = parsed(text, *cuts)
    assert found == [each for request in order for each in parsed(request)]
    assert sorted((r[0], r[1], r[3]) for r in found) == [
        ("GET", "/c", b""), ("POST", "/a", b"abc"), ("POST", "/b", b"def")
    ]  # fmt: skip


@given(st.integers(0, len(POST + CHUNKED) * 8 - 1))
@settings(max_examples=300)
def test_a_flipped_bit_is_another_request_or_an_error(bit):
    data = bytearray(POST + CHUNKED)
    data[bit // 8] ^= 1 << bit % 8
    parser = Parser(HttpLimits())
    parser.feed(bytes(data))
    assert parser.error is None or parser.error.status in (400, 413, 501)


def test_a_connection_serves_many_requests():
    with listening() as listener:
        connection = http.client.HTTPConnection("127.0.0.1", listener.port)
        for number in range(3):
            connection.request("POST", f"/{number}", body=b"x" * number)
            assert connection.getresponse().read() == b"POST /%d " % number + b"x" * number
        connection.close()


def test_the_limits_are_those_of_each_request():
    with listening(limits=SHORT) as listener, closing(connect(listener)) as client:
        for _ in range(100):  # 100 times 50 bytes are more than any one request may have
            client.sendall(POST)
            assert client.recv(1000).endswith(b"POST /a abc")


def test_pipelined_requests_are_answered_in_order():
    with listening() as listener:
        found = talk(listener, POST + CHUNKED + GET + b"GET /end HTTP/1.0\r\n\r\n")
    assert [part.split(b"\r\n\r\n")[1] for part in found.split(b"HTTP/1.1 200 OK")[1:]] == [
        b"POST /a abc", b"POST /b def", b"GET /c ", b"GET /end "
    ]  # fmt: skip


def test_old_clients_and_heads():
    with listening() as listener:
        found = talk(listener, b"GET /a HTTP/1.0\r\nConnection: keep-alive\r\n\r\n"
                               b"HEAD /b HTTP/1.0\r\n\r\n")  # fmt: skip
    first, second = found.split(b"HTTP/1.1 200 OK\r\n")[1:]
    assert b"Connection: keep-alive" in first
    assert b"Connection: close" in second
    assert b"Content-Length: 8\r\n" in second
    assert second.endswith(b"\r\n\r\n")


def test_who_waits_to_be_told_is_told_to_go_on():
    with listening(limits=SHORT) as listener, closing(connect(listener)) as client:
        client.sendall(
            b"POST /a HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n"
        )
        assert client.recv(1000) == b"HTTP/1.1 100 Continue\r\n\r\n"
        client.sendall(b"hi")
        assert client.recv(1000).endswith(b"POST /a hi")


@pytest.mark.parametrize(
    ("data", "status", "words"),
    [
        (
            b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1001\r\n\r\n",
            413,
            says("http-body-too-large", most=1000).encode(),
        ),
        (
            b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1001\r\nExpect: 100-continue\r\n\r\n",
            413,
            b"limit",
        ),
        (
            b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n3e9\r\n"
            + b"x" * 1001,
            413,
            b"lim",
        ),
        (
            b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n"
            + b"1\r\nx\r\n" * 600,
            413,
            b"lim",
        ),
        (
            b"GET / HTTP/1.1\r\nHost: h\r\nX: " + b"y" * 600,
            431,
            says("http-headers-too-long", most=500).encode(),
        ),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400, NOT_HTTP),
        (b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: -1\r\n\r\n", 400, b"Content-Length"),
        (
            b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
            400,
            b"Content-L",
        ),
        (
            b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n"
            b"Transfer-Encoding: chunked\r\n\r\n",
            400,
            b"Tra",
        ),
        (
            b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
            501,
            says("unexpected", what="Transfer-Encoding", expected="chunked").encode(),
        ),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400, NOT_HTTP),
    ],
    ids=range(11),
)
def test_what_is_refused_before_it_is_read(data, status, words):
    with listening(limits=SHORT) as listener:
        found = talk(listener, data)
    assert found.startswith(b"HTTP/1.1 %d " % status), found
    assert b'{"error":"' in found
    assert re.search(words, found)
    assert b"Connection: close" in found
    assert b"Continue" not in found


def test_a_request_before_a_broken_one_is_answered():
    with listening(limits=SHORT) as listener:
        found = talk(listener, POST + b"\x00\x00")
    assert found.index(b"200 OK") < found.index(b"400 Bad Request")


def test_who_sends_too_much_reads_why():
    """Closed with unread bytes, the connection would be reset, and the answer lost."""
    with listening(limits=HttpLimits(body=1000)) as listener:
        connection = http.client.HTTPConnection("127.0.0.1", listener.port, timeout=20)
        connection.request("POST", "/", body=b"x" * (20 << 20))
        response = connection.getresponse()
        assert response.status == 413
        assert b"limit of 1000 bytes" in response.read()
        connection.close()


@pytest.mark.sampled
def test_a_silent_connection_is_closed():
    with listening(limits=SHORT) as listener, closing(connect(listener)) as client:
        assert until_closed(client) == b""


def test_half_a_request_is_told_that_time_is_over():
    with listening(limits=SHORT) as listener:
        assert talk(listener, POST[:-1]).startswith(b"HTTP/1.1 408 ")


@pytest.mark.sampled
def test_a_trickle_is_cut():
    limits = HttpLimits(patience=0.3, rate=1000)  # 1 ms for each byte
    with listening(limits=limits) as listener, closing(connect(listener)) as client:
        try:
            for byte in POST:
                client.sendall(bytes([byte]))
                time.sleep(0.05)
        except OSError:
            return  # it is closed, and said so meanwhile
        assert client.recv(1000).startswith(b"HTTP/1.1 408 ")


@pytest.mark.sampled
def test_who_does_not_read_is_cut():
    limits = HttpLimits(patience=0.3, rate=1 << 30)
    answer = Response(200, b"x" * (64 << 20))
    with listening(lambda _: answer, limits) as listener, closing(connect(listener)) as client:
        client.sendall(GET)
        until(lambda: listener._connections)
        until(lambda: not listener._connections)


def test_who_idles_between_requests_is_closed():
    limits = HttpLimits(idle=0.3, patience=600)
    with listening(limits=limits) as listener, closing(connect(listener)) as client:
        client.sendall(POST)
        assert until_closed(client).endswith(b"POST /a abc")


def test_whoever_waited_longest_makes_room():
    with listening(limits=HttpLimits(connections=3)) as listener:
        clients = []
        for number in range(3):
            clients.append(connect(listener))
            until(lambda n=number: len(listener._connections) == n + 1)
        clients[0].sendall(POST[:-1])
        clients.append(connect(listener))
        assert until_closed(clients[0]) == b""
        for client in clients[1:]:
            client.sendall(POST)
            assert client.recv(1000).endswith(b"POST /a abc")
        for client in clients:
            client.close()


def test_without_room_a_connection_is_refused():
    go_on = threading.Event()

    def answer(request):
        go_on.wait()
        return echo(request)

    with (
        listening(answer, HttpLimits(connections=1)) as listener,
        closing(connect(listener)) as client,
    ):
        client.sendall(POST)
        until(lambda: any(each.waits_since is None for each in listener._connections))
        assert talk(listener, b"").startswith(b"HTTP/1.1 503 ")
        go_on.set()
        assert client.recv(1000).endswith(b"POST /a abc")


def test_new_calls_are_refused_and_those_in_flight_are_answered():
    go_on, begun = threading.Event(), threading.Event()

    def answer(request):
        begun.set()
        go_on.wait()
        return echo(request)

    with listening(answer, HttpLimits(patience=600)) as listener:
        busy, idle, half = connect(listener), connect(listener), connect(listener)
        busy.sendall(POST)
        half.sendall(POST[:9])
        begun.wait()
        until(lambda: (listener.in_flight, listener.arriving) == (1, 1))
        listener.closing = True
        for each, rest in ((idle, POST), (half, POST[9:]), (connect(listener), POST)):
            each.sendall(rest)
            found = until_closed(each)
            assert found.startswith(b"HTTP/1.1 503 ")
            assert b"Connection: close" in found
        go_on.set()
        found = until_closed(busy)
        assert found.endswith(b"POST /a abc")
        assert b"Connection: close" in found
        until(lambda: not listener.in_flight)
        assert not listener.arriving
        busy.close()


def test_whoever_leaves_closes_connections_with_an_answer():
    with listening() as listener, closing(connect(listener)) as client:
        listener.leaving = True
        client.sendall(POST)
        found = until_closed(client)
        assert found.startswith(b"HTTP/1.1 200 ")
        assert b"Connection: close" in found


def test_the_end_cuts_who_takes_longer():
    go_on, begun = threading.Event(), threading.Event()

    def answer(request):
        begun.set()
        go_on.wait()
        return echo(request)

    with listening(answer) as listener, closing(connect(listener)) as client:
        client.sendall(POST)
        begun.wait()
        with closing(connect(listener)) as idle:
            until(lambda: len(listener._connections) == 2)
            listener.close()
            assert until_closed(client) == until_closed(idle) == b""
        with pytest.raises(OSError, match="refused"):
            connect(listener)
        go_on.set()


def test_whether_the_caller_has_hung_up():
    seen, begun, hung_up = [], threading.Event(), threading.Event()

    def answer(request):
        seen.append(request.gone())
        begun.set()
        hung_up.wait()
        until(request.gone)
        seen.append(True)
        return echo(request)

    with listening(answer) as listener:
        client = connect(listener)
        client.sendall(POST)
        begun.wait()
        client.close()
        hung_up.set()
        until(lambda: not listener._connections)
    assert seen == [False, True]


def test_a_port_that_is_taken():
    with listening() as listener:
        second = Listener(echo, port=listener.port)
        with pytest.raises(Error, match=says("rest-cannot-listen", host="127.0.0.1")):
            second.start()
    with raises(Error, "rest-cannot-listen", host="192.0.2.1", port=0):
        Listener(echo, host="192.0.2.1").start()
