"""Which connections count as floods, by the bytes they send and the calls that are noted."""

import socket
import time
from collections.abc import Iterator
from concurrent import futures
from contextlib import ExitStack

import grpc
import pytest

from deploykit.serving.grpc_server.floods import Floods, peer_name, without_scope
from deploykit.serving.server.ports import connected_sockets

MIB = 1 << 20
LARGEST = 4 * MIB


class Connection:
    """A connection to this process, and what the server notes of its calls."""

    def __init__(self, stack: ExitStack, floods: Floods) -> None:
        with socket.create_server(("127.0.0.1", 0)) as server:
            self.client = stack.enter_context(socket.create_connection(server.getsockname()))
            self.server = stack.enter_context(server.accept()[0])
        self.floods = floods
        self.peer = f"ipv4:127.0.0.1:{self.client.getsockname()[1]}"
        self.now = time.monotonic()

    def send(self, size: int) -> None:
        self.client.settimeout(10)
        left = size
        while left:
            part = min(left, 1 << 16)
            self.client.sendall(bytes(part))
            left -= part
            while part:
                part -= len(self.server.recv(part))

    def is_ended(self, seconds: float = 0.25) -> bool:
        """Return whether it is hung up on at the next look."""
        self.now += seconds
        return bool(self.floods.look(self._sockets(), self.now))

    def _sockets(self) -> Iterator[socket.socket]:
        yield self.server.dup()


@pytest.fixture
def connection():
    with ExitStack() as stack:
        made = Connection(stack, Floods(LARGEST))
        assert not made.is_ended()
        yield made


def test_bytes_without_a_call_are_a_flood(connection):
    connection.send(MIB // 2)
    assert not connection.is_ended()
    connection.send(MIB)
    assert not connection.is_ended()  # a busy server notes calls late
    assert not connection.is_ended(1.4)
    assert connection.is_ended(0.2)
    assert connection.client.recv(1) == b""


def test_pings_of_a_silent_client_are_none(connection):
    for _ in range(20):
        connection.send(MIB // 10)
        assert not connection.is_ended(200)


def test_calls_are_none_however_large(connection):
    for _ in range(4):
        connection.floods.note(connection.peer, calls=1)
        connection.send(2 * MIB)
        assert not connection.is_ended()
        connection.floods.note(connection.peer, calls=-1)
    connection.floods.note(connection.peer)  # one that was refused
    connection.send(2 * MIB)
    assert not connection.is_ended()


def test_a_request_that_arrives_may_be_as_large_as_the_limit(connection):
    connection.floods.note(connection.peer, calls=1, arriving=1)
    assert not connection.is_ended()
    connection.send(LARGEST)
    assert not connection.is_ended(60)
    connection.send(2 * MIB)
    assert not connection.is_ended()  # a client that calls has five seconds
    assert connection.is_ended(6)


def test_a_client_that_takes_no_answers_has_some_seconds(connection):
    connection.floods.note(connection.peer, calls=1)
    assert not connection.is_ended()
    connection.send(2 * MIB)
    assert not connection.is_ended()
    assert not connection.is_ended(4)
    assert connection.is_ended(2)


def test_a_client_that_has_called_has_some_seconds(connection):
    connection.floods.note(connection.peer, calls=1)
    connection.floods.note(connection.peer, calls=-1)
    assert not connection.is_ended()
    connection.send(2 * MIB)
    assert not connection.is_ended()
    assert not connection.is_ended(4)
    assert connection.is_ended(2)


@pytest.mark.parametrize("host", ["fe80::1", "fe80::1%eth0", "fe80::1%2"])
@pytest.mark.parametrize("scope", ["", "%25eth0", "%252"])
def test_the_scope_of_an_address_does_not_matter(host, scope):
    assert peer_name(host, 80) == without_scope(f"ipv6:%5Bfe80::1{scope}%5D:80")


@pytest.mark.parametrize(("resets", "is_flood"), [(4000, False), (4001, True)])
def test_resets_without_end_are_a_flood(connection, resets, is_flood):
    ended = []
    for _ in range(8):
        for _ in range(resets):
            connection.floods.note(connection.peer, calls=1)
            connection.floods.reset(connection.peer)
            connection.floods.note(connection.peer, calls=-1)
        ended.append(connection.is_ended(1))
    assert any(ended) == is_flood
    assert not any(ended[:5])


@pytest.mark.parametrize("host", ["127.0.0.1", "[::1]"])
def test_a_connection_has_the_name_that_grpc_gives_to_its_peer(host):
    names = []

    def call(request, context):
        names.append(context.peer())
        return b""

    class Names(grpc.GenericRpcHandler):
        def service(self, details):
            return grpc.unary_unary_rpc_method_handler(call)

    server = grpc.server(futures.ThreadPoolExecutor(1), handlers=[Names()])
    port = server.add_insecure_port(f"{host}:0")
    server.start()
    with grpc.insecure_channel(f"{host}:{port}") as channel:
        channel.unary_unary("/a/B")(b"", timeout=10)
        known = {peer_name(*socket.getpeername()[:2]) for socket in connected_sockets(port)}
    server.stop(None)
    assert known == set(names)
