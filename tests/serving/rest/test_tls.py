"""REST over TLS: the same port, limits and endings; and nobody who shows the wrong certificate."""

import http.client
import json
import socket
import ssl
import threading
import time
from contextlib import closing, suppress

import grpc
import pytest

from deploykit.serving.rest.http_requests import HttpLimits
from deploykit.serving.rest.listener import Listener, Response
from deploykit.serving.server.shutdown import refuse_and_answer
from deploykit.serving.server.tls import https_context
from tests.serving.rest.test_listener import echo, until, until_closed
from tests.serving.served import Served, free_port

SHORT = HttpLimits(body=1 << 20, connections=2, patience=0.3, rate=100_000_000, idle=0.3)
GET = b"GET /a HTTP/1.1\r\nHost: h\r\n\r\n"
LAST = b"GET /a HTTP/1.0\r\n\r\n"


@pytest.fixture
def listening(authority):
    """Return what starts a listener."""
    started = []

    def start(answer=echo, limits=HttpLimits(), **options):  # noqa: B008
        tls = https_context(authority.tls(**options))
        started.append(Listener(answer, limits=limits, tls=tls))
        started[-1].start()
        return started[-1]

    yield start
    for each in started:
        each.close()


def client_context(authority, pair=None, folder=None) -> ssl.SSLContext:
    context = ssl.create_default_context(cadata=authority.certificate)
    if pair is not None:
        file = folder / "client.pem"
        file.write_text("".join(pair))
        context.load_cert_chain(file)
    return context


def plain(listener) -> socket.socket:
    return socket.create_connection(("127.0.0.1", listener.port), timeout=20)


def connect(listener, authority) -> ssl.SSLSocket:
    return client_context(authority).wrap_socket(plain(listener), server_hostname="localhost")


def test_requests_of_any_size_come_and_go(listening, authority):
    port = listening().port
    connection = http.client.HTTPSConnection(
        "localhost", port, context=client_context(authority), timeout=60
    )
    for size in (0, 1, 1 << 14, 5 << 20):
        connection.request("POST", "/a", b"x" * size)
        assert connection.getresponse().read() == b"POST /a " + b"x" * size
    connection.close()


def test_the_end_of_an_answer_is_told(listening, authority):
    """Without a farewell, OpenSSL takes what came for cut off."""
    with closing(connect(listening(), authority)) as client:
        client.suppress_ragged_eofs = False
        client.sendall(LAST)
        assert until_closed(client).endswith(b"GET /a ")


def test_who_speaks_no_tls_is_told_and_others_are_answered(listening, authority):
    listener = listening()
    with closing(plain(listener)) as client:
        client.sendall(GET)
        found = until_closed(client)
    assert found.startswith(b"HTTP/1.1 400 ")
    assert b"HTTPS" in found
    for garbage in (b"\0" * 1000, b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\xff" * 600):
        with closing(plain(listener)) as client:
            client.sendall(garbage)
            with suppress(ConnectionError):
                until_closed(client)
    with closing(connect(listener, authority)) as client:
        client.sendall(LAST)
        assert until_closed(client).endswith(b"GET /a ")


@pytest.mark.sampled
@pytest.mark.parametrize("said", [b"", b"\x16\x03\x01\x02\x00\x01"])
def test_a_handshake_that_does_not_end_holds_up_nobody_and_is_ended(listening, authority, said):
    listener = listening(limits=SHORT)
    with closing(plain(listener)) as slow:
        slow.sendall(said)
        with closing(connect(listener, authority)) as client:
            client.sendall(LAST)
            assert until_closed(client).endswith(b"GET /a ")
        assert until_closed(slow) == b""


def test_half_a_handshake_gives_way_where_there_is_no_more_room(listening, authority):
    listener = listening(limits=HttpLimits(connections=2))
    with closing(plain(listener)) as first, closing(plain(listener)):
        until(lambda: len(listener._connections) == 2)
        with closing(connect(listener, authority)) as client:
            client.sendall(LAST)
            assert until_closed(client).endswith(b"GET /a ")
        assert until_closed(first) == b""


def test_who_hangs_up_is_seen(listening, authority):
    gone, began = threading.Event(), threading.Event()

    def wait(request):
        began.set()
        while not request.gone():
            time.sleep(0.005)
        gone.set()
        return Response(200, b"")

    client = connect(listening(wait), authority)
    client.sendall(GET)
    assert began.wait(60)
    client.close()
    assert gone.wait(60)


def test_what_is_in_flight_is_answered_over_tls_at_the_end(listening, authority):
    began, go_on = threading.Event(), threading.Event()

    def wait(request):
        began.set()
        go_on.wait()
        return echo(request)

    listener = listening(wait)
    with closing(connect(listener, authority)) as client, closing(connect(listener, authority)):
        client.sendall(GET)
        assert began.wait(60)
        end = time.monotonic() + 60
        ended = threading.Thread(target=refuse_and_answer, args=([listener], end))
        ended.start()
        until(lambda: listener.closing)
        go_on.set()
        assert until_closed(client).endswith(b"GET /a ")
        ended.join()


@pytest.mark.sampled
def test_a_client_that_reads_nothing_is_cut_off_in_time(listening, authority):
    """ssl grants each record the whole time."""
    listener = listening(lambda _: Response(200, bytes(64 << 20)), SHORT)
    with closing(connect(listener, authority)) as client:
        client.sendall(GET)
        until(lambda: listener._connections)
        until(lambda: not listener._connections)


@pytest.fixture(scope="module")
def mutual(tmp_path_factory, authority):
    """A server that asks for certificates of its clients, without models."""
    folder = tmp_path_factory.mktemp("mutual")
    tls = authority.tls(client_verify=True)
    (folder / "models.config").write_text("model_config_list {}")
    (folder / "monitoring.config").write_text('prometheus_config { enable: true path: "/page" }')
    (folder / "ssl.config").write_text(
        f"server_key: {json.dumps(tls.server_key)}\nserver_cert: {json.dumps(tls.server_cert)}\n"
        f"custom_ca: {json.dumps(tls.custom_ca)}\nclient_verify: true\n"
    )
    server = Served(f"--model_config_file={folder}/models.config",
                    f"--monitoring_config_file={folder}/monitoring.config",
                    f"--ssl_config_file={folder}/ssl.config",
                    f"--rest_api_port={free_port()}")  # fmt: skip
    yield server
    server.kill()


def status(connection, path) -> int:
    connection.request("GET", path)
    return connection.getresponse().status


@pytest.mark.sampled
def test_mutual_tls_holds_over_both_transports(mutual, authority, other, tmp_path):
    port = mutual.document["rest_api_port"]
    assert mutual.document["rest_url"] == f"https://127.0.0.1:{port}/v1"
    stranger = other.pair("stranger")
    for pair, right in ((authority.pair("client"), True), (None, False), (stranger, False)):
        credentials = grpc.ssl_channel_credentials(
            authority.certificate.encode(), *(text.encode() for text in pair or ())
        )
        with grpc.secure_channel(f"localhost:{mutual.document['port']}", credentials) as channel:
            check = channel.unary_unary("/grpc.health.v1.Health/Check")
            if right:
                assert check(b"", timeout=20) == b"\x08\x01"
            else:
                with pytest.raises(grpc.RpcError) as error:
                    check(b"", timeout=20)
                assert error.value.code() is grpc.StatusCode.UNAVAILABLE
        for path in ("/v1/models", "/page"):
            context = client_context(authority, pair, tmp_path)
            connection = http.client.HTTPSConnection("localhost", port, context=context, timeout=20)
            with closing(connection):
                if right:
                    assert status(connection, path) == 200
                else:
                    with pytest.raises((ssl.SSLError, ConnectionError, http.client.HTTPException)):
                        status(connection, path)
    connection = http.client.HTTPConnection("localhost", port, timeout=20)
    with closing(connection):
        assert status(connection, "/v1/models") == 400
