"""Bodies that are on their way: a bound for all, room for small ones, and no memory left behind."""

import http.client
import socket
import threading
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from deploykit.serving.execution.uploads import SMALL, Uploads
from deploykit.serving.rest.http_requests import HttpLimits
from deploykit.serving.rest.listener import Listener
from tests.serving.rest.test_listener import POST, connect, echo, until, until_closed
from tests.serving.served import Served, free_port
from tests.serving.small_models import half_plus
from tests.support import Containing, shows

MIB = 1 << 20


class StatefulResource:
    """A listener whose uploads are counted, with a clock that is set."""

    def __init__(self):
        self.now = 0.0
        self.uploads = Uploads(32 * MIB, lambda: self.now)
        self.listener = Listener(
            echo,
            limits=HttpLimits(body=32 * MIB),
            begin=lambda _, size, end: self.uploads.begin(size, end),
        )

    def upload(self, size: int, sent: int) -> socket.socket:
        """Send the first bytes of a body of so many, and wait until they are there."""
        client = connect(self.listener)
        before = self.uploads.held
        client.sendall(head(size) + b"x" * sent)
        until(lambda: self.uploads.held == before + sent)
        return client


@pytest.fixture
def held():
    found = StatefulResource()
    found.listener.start()
    yield found
    found.listener.close()


def head(size: int) -> bytes:
    return f"POST /a HTTP/1.1\r\nHost: h\r\nContent-Length: {size}\r\n\r\n".encode()


def test_what_is_declared_counts_and_more_is_refused_at_the_headers(held):
    with ExitStack() as stack:
        for _ in range(3):
            stack.enter_context(held.upload(32 * MIB, 1))
        for expect in (b"", b"Expect: 100-continue\r\n"):
            client = stack.enter_context(connect(held.listener))
            client.sendall(head(32 * MIB)[:-2] + expect + b"\r\n")
            client.shutdown(socket.SHUT_WR)
            found = until_closed(client)
            assert found.startswith(b"HTTP/1.1 429 ")
            assert b"Retry-After: 1\r\n" in found
            assert shows(found.decode(), "uploads-full")
            assert b"Continue" not in found
        client = stack.enter_context(connect(held.listener))
        client.sendall(head(SMALL) + b"y" * SMALL)
        while b"yyy" not in client.recv(MIB):
            pass
    until(lambda: held.uploads.held == 0)
    with closing(held.upload(32 * MIB, 5 * MIB)):
        pass
    until(lambda: held.uploads.held == 0)


def test_the_flag_that_bounds_a_document_is_named(held):
    held.listener.limits = HttpLimits(body=1000, flag="--max_json_mb")
    with closing(connect(held.listener)) as client:
        client.sendall(head(1001))
        client.shutdown(socket.SHUT_WR)
        found = until_closed(client)
    assert found.startswith(b"HTTP/1.1 413 ")
    assert shows(found.decode(), "http-body-too-large", most=1000, flag=Containing("--max_json_mb"))


def test_a_stalled_upload_makes_room_and_is_told(held):
    with ExitStack() as stack:
        first, second, third = (stack.enter_context(held.upload(32 * MIB, n * 9 * MIB))
                                for n in (1, 3, 2))  # fmt: skip
        held.now = 60.0
        more = [stack.enter_context(connect(held.listener)) for _ in range(2)]
        for client in more:
            client.sendall(head(32 * MIB))
        found = until_closed(second)  # it is told although it never ends its request
        assert found.startswith(b"HTTP/1.1 429 ")
        assert b"Retry-After" in found
        second.close()
        until(lambda: held.uploads.held == 27 * MIB)
        for client in (first, third, *more):
            client.setblocking(False)
            with pytest.raises(BlockingIOError):
                client.recv(1)


def test_what_was_answered_is_not_held(held):
    client = http.client.HTTPConnection("127.0.0.1", held.listener.port, timeout=20)
    for body in (b"x" * (4 * MIB), iter([b"x" * MIB] * 4), b""):
        client.request("POST", "/a", body)
        assert client.getresponse().read().count(b"x") in (4 * MIB, 0)
        until(lambda: held.uploads.held == 0)
    assert not held.uploads._all
    client.close()


def test_new_connections_do_not_end_those_that_are_kept(held):
    held.listener.limits = HttpLimits(connections=4)
    with ExitStack() as stack:
        kept = stack.enter_context(connect(held.listener))
        kept.sendall(POST)
        assert kept.recv(1000).endswith(b"POST /a abc")
        for _ in range(20):
            stack.enter_context(connect(held.listener))
        coming = stack.enter_context(connect(held.listener))
        coming.sendall(POST[:-1])
        for _ in range(2):
            stack.enter_context(connect(held.listener))
        for client, rest in ((kept, POST), (coming, POST[-1:])):
            client.sendall(rest)
            assert client.recv(1000).endswith(b"POST /a abc")


def resident(server: Served) -> int:
    """Return the bytes of memory that a server has of the machine."""
    status = Path(f"/proc/{server.process.pid}/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0]) << 10


@pytest.mark.sampled
@pytest.mark.parametrize("chunked", [False, True])
def test_memory_is_bounded_and_comes_back(tmp_path, chunked):
    folder = half_plus(tmp_path / "half_plus_two", 2)
    server = Served(folder, f"--rest_api_port={free_port()}", "--max_json_mb=256", forked=False)
    url = ("127.0.0.1", server.document["rest_api_port"])
    size = 250 * MIB
    begin = (
        b"POST /v1/models/half_plus_two:predict HTTP/1.1\r\nHost: h\r\n"
        b"Transfer-Encoding: chunked\r\n\r\n%x\r\n" % size
        if chunked
        else head(size)
    )

    def upload(client: socket.socket) -> None:
        try:
            client.sendall(begin)
            for _ in range(249):
                client.sendall(b"1" * MIB)
        except OSError:
            pass

    try:
        before = resident(server)
        clients = [socket.create_connection(url, timeout=30) for _ in range(12)]
        threads = [threading.Thread(target=upload, args=(each,)) for each in clients]
        for each in threads:
            each.start()
        most = 0
        while any(each.is_alive() for each in threads):
            threads[0].join(0.05)
            most = max(most, resident(server) - before)
        assert most < 1300 * MIB
        for client in clients:
            client.close()
        until(lambda: resident(server) < before + 64 * MIB)
    finally:
        server.kill()
