"""What surrounds the models: health, reflection, TLS, ports, sizes, half-open connections."""

import contextlib
import socket
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import replace

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import (
    ProtoReflectionDescriptorDatabase,
)
from grpc_reflection.v1alpha.reflection_pb2 import (
    ServerReflectionRequest,
    ServerReflectionResponse,
)

from deploykit.serving.protocol.errors import ServingError
from deploykit.serving.protocol.open_inference import METHODS
from deploykit.serving.protocol.protos import (
    GetModelStatusRequest,
    ModelServerConfig,
    PredictRequest,
    ReloadConfigRequest,
)
from deploykit.serving.server.config_files import Tls
from deploykit.serving.server.ports import channel_arguments, channel_options
from deploykit.serving.server.server import Server
from deploykit.serving.server.settings import ServerSettings
from deploykit.serving.server.tls import CertificateError, server_context
from deploykit.transforms.common.errors import CodedError, Error, FileError
from tests.serving.certificates import Authority
from tests.serving.official_stubs import ModelServiceStub, PredictionServiceStub
from tests.support import raises, shows

SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING
NAMES = ("", "ModelService", "PredictionService", "tensorflow.serving.ModelService",
         "tensorflow.serving.PredictionService", "GRPCInferenceService",
         "inference.GRPCInferenceService")  # fmt: skip


@contextlib.contextmanager
def served(**given) -> Iterator[Server]:
    """Start a server without models, which needs no TensorFlow."""
    server = Server(ServerSettings([], **{"port": 0, **given}))
    server.start()
    try:
        yield server
    finally:
        server.drain(1)


@contextlib.contextmanager
def connected(server: Server, credentials=None) -> Iterator[grpc.Channel]:
    address = f"127.0.0.1:{server.port}"
    channel = (grpc.secure_channel(address, credentials) if credentials
               else grpc.insecure_channel(address))  # fmt: skip
    with channel:
        yield channel


def health(channel, name=""):
    request = health_pb2.HealthCheckRequest(service=name)
    return health_pb2_grpc.HealthStub(channel).Check(request, timeout=10).status


def code(call, request):
    with pytest.raises(grpc.RpcError) as error:
        call(request, timeout=10)
    return error.value.code().name, error.value.details()


@pytest.mark.sampled
@pytest.mark.parametrize("name", NAMES)
def test_the_server_is_healthy_under_each_of_its_names(name):
    with served() as server, connected(server) as channel:
        assert health(channel, name) == SERVING


def test_a_name_nobody_has_is_not_found():
    with served() as server, connected(server) as channel:
        request = health_pb2.HealthCheckRequest(service="nobody")
        found = code(health_pb2_grpc.HealthStub(channel).Check, request)
        assert found[0] == "NOT_FOUND"
        assert shows(found[1], "service-missing", name="nobody")


def test_whoever_watches_is_told_of_the_end_and_does_not_hold_it_up():
    with served() as server, connected(server) as channel:
        watched = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest())
        assert next(watched).status == SERVING
        unknown = health_pb2_grpc.HealthStub(channel).Watch(
            health_pb2.HealthCheckRequest(service="nobody")
        )
        assert next(unknown).status == health_pb2.HealthCheckResponse.SERVICE_UNKNOWN
        assert server.drain(20)  # it would wait so long for a stream, then cut it off
        assert [each.status for each in watched] == [NOT_SERVING]
        assert list(unknown) == []


def test_reflection_tells_services_and_messages():
    with served() as server, connected(server) as channel:
        database = ProtoReflectionDescriptorDatabase(channel)
        assert {"tensorflow.serving.PredictionService", "tensorflow.serving.ModelService",
                "grpc.health.v1.Health",
                "inference.GRPCInferenceService"} <= set(database.get_services())  # fmt: skip
        found = database.FindFileContainingSymbol("tensorflow.serving.PredictRequest")
        assert found.name == "tensorflow_serving/apis/predict.proto"
        found = database.FindFileContainingSymbol("inference.GRPCInferenceService")
        assert found.name == "open_inference.proto"
        assert [each.name for each in found.service[0].method] == list(METHODS)


def test_reflection_answers_under_its_newer_name_too():
    with served() as server, connected(server) as channel:
        ask = channel.stream_stream(
            "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
            ServerReflectionRequest.SerializeToString,
            ServerReflectionResponse.FromString,
        )
        question = ServerReflectionRequest(file_containing_symbol="tensorflow.TensorProto")
        [answer] = ask(iter([question]), timeout=10)
        assert answer.file_descriptor_response.file_descriptor_proto


def trusting(authority: Authority, *pair: str):
    return grpc.ssl_channel_credentials(
        authority.certificate.encode(), *(text.encode() for text in pair)
    )


def test_tls(authority, other):
    with served(tls=authority.tls()) as server:
        with connected(server, trusting(authority)) as channel:
            assert health(channel) == SERVING
        for credentials in (None, trusting(other)):
            with connected(server, credentials) as channel, pytest.raises(grpc.RpcError):
                health(channel)


@pytest.mark.sampled
def test_mutual_tls_takes_clients_with_the_right_certificate_alone(authority, other):
    with served(tls=authority.tls(client_verify=True)) as server:
        with connected(server, trusting(authority, *authority.pair("client"))) as channel:
            assert health(channel) == SERVING
        for pair in ((), other.pair("stranger")):
            with connected(server, trusting(authority, *pair)) as channel:
                with pytest.raises(grpc.RpcError) as error:
                    health(channel)
                assert error.value.code() is grpc.StatusCode.UNAVAILABLE


def test_certificates_with_which_nobody_would_connect_are_refused_at_the_start(authority, other):
    good = authority.tls()
    key, certificate = good.server_key, good.server_cert
    strange = other.pair("strange")[0]
    cut = certificate[: len(certificate) // 2]
    for tls, code, fields in (
        (authority.tls("late", days=-1), "tls-clients-refuse", {}),
        (Tls(strange, certificate), "tls-key-mismatch", {}),
        (Tls(key, cut), "tls-pair-unreadable", {}),
        (Tls("nonsense", certificate), "tls-pair-unreadable", {}),
        (Tls(key, certificate, cut), "tls-certificate-unreadable", {"name": "custom_ca"}),
    ):
        with raises(CertificateError, code, **fields):
            server_context(tls)
    server_context(good)
    late = authority.tls("late", days=-1)
    with raises(CertificateError, "tls-clients-refuse", source="here"):
        Server(ServerSettings([], tls=replace(late, source="here")))


def test_a_key_with_a_passphrase_asks_nobody(authority, tmp_path):
    good = authority.tls()
    locked = tmp_path / "locked.key"
    subprocess.run(["openssl", "pkcs8", "-topk8", "-passout", "pass:secret", "-out", locked],
                   input=good.server_key.encode(), check=True, capture_output=True)  # fmt: skip
    with raises(CertificateError, "tls-pair-unreadable"):
        server_context(Tls(locked.read_text(), good.server_cert))


@pytest.mark.parametrize("reuse", [0, 1])
def test_a_port_in_use_is_an_error(reuse):
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, reuse)
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        source = f"127.0.0.1:{port}"
        with (
            raises(FileError, "port-unavailable", source=source, flag="--port"),
            served(port=port),
        ):
            pass


def test_a_port_of_rest_in_use_is_an_error():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with (
            raises(FileError, "port-unavailable", flag="--rest_api_port"),
            served(rest_api_port=port),
        ):
            pass


def test_hosts_that_are_not_ours_are_errors():
    for host in ("192.0.2.1", "no.such.host.invalid"):
        with pytest.raises(FileError, match=f"^{host}:0: "), served(host=host):
            pass


def test_a_unix_socket(tmp_path):
    path = tmp_path / "socket"
    with served(grpc_socket_path=str(path)), grpc.insecure_channel(f"unix:{path}") as channel:
        assert health(channel) == SERVING


def test_a_request_that_is_too_large_is_refused_unread():
    with served(max_message_bytes=1 << 20) as server, connected(server) as channel:
        request = PredictRequest()
        request.model_spec.name = "m"
        request.inputs["x"].tensor_content = bytes(2 << 20)
        status, words = code(PredictionServiceStub(channel).Predict, request)
        assert status == "RESOURCE_EXHAUSTED"
        assert f"{1 << 20}" in words


def test_requests_that_never_come_hold_up_nobody():
    with served(max_in_flight=2) as server, connected(server) as channel:
        over = threading.Event()

        def never():
            over.wait()
            yield b""

        begin = channel.stream_unary("/tensorflow.serving.PredictionService/Predict")
        calls = [begin.future(never()) for _ in range(5)]
        while server._threads.occupied < len(calls):
            pass
        found = code(PredictionServiceStub(channel).Predict, PredictRequest())
        assert found == ("INVALID_ARGUMENT", str(CodedError("model-spec-missing")))
        assert health(channel) == SERVING
        asked = ModelServiceStub(channel).GetModelStatus
        assert code(asked, GetModelStatusRequest())[0] == "INVALID_ARGUMENT"
        for each in calls:
            each.cancel()
        over.set()
        while server._threads.occupied:
            pass  # their threads are free again


def test_bytes_that_are_no_message_are_answered():
    with served() as server, connected(server) as channel:
        call = channel.unary_unary("/tensorflow.serving.PredictionService/Predict")
        assert code(call, b"\xff\xff\xff")[0] == "INTERNAL"
        assert health(channel) == SERVING


def test_models_are_changed_from_this_machine_alone():
    with served() as server, connected(server) as channel:
        request = ReloadConfigRequest()
        request.config.model_config_list.SetInParent()
        answer = ModelServiceStub(channel).HandleReloadConfigRequest(request, timeout=10)
        assert answer.status.error_code == 0
        for peer in ("ipv4:10.0.0.7:1234", "ipv6:[fe80::1]:1", "ipv4:1127.0.0.1:1", ""):
            with raises(ServingError, "reload-from-elsewhere") as error:
                server._reload(request.config, peer)
            assert error.value.status == "PERMISSION_DENIED"
    with served(allow_reload=True) as server:
        server._reload(request.config, "ipv4:10.0.0.7:1234")


def test_with_workers_a_reload_would_reach_one_of_them():
    with served(workers=2) as server, raises(ServingError, "reload-needs-file"):
        server._reload(ModelServerConfig(), "ipv4:127.0.0.1:1")


HELLO = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
SETTINGS = b"\0\0\0\4\0\0\0\0\0"


@pytest.mark.sampled
@pytest.mark.parametrize("said", [b"", HELLO[:16], HELLO, HELLO + SETTINGS])
def test_a_connection_that_says_too_little_is_closed(said):
    waits = ("server_handshake_timeout_ms", "keepalive_time_ms", "http2.ping_timeout_ms")
    patience = ",".join(f"grpc.{name}=200" for name in waits)
    with (
        served(grpc_channel_arguments=patience) as server,
        socket.create_connection(("127.0.0.1", server.port)) as half_open,
    ):
        half_open.sendall(said)
        half_open.settimeout(60)
        while half_open.recv(1 << 16):
            pass


def test_a_call_without_a_request_is_told_so():
    with served() as server, connected(server) as channel:
        predict = channel.stream_unary("/tensorflow.serving.PredictionService/Predict")
        found = code(predict, iter(()))
    assert found == ("UNIMPLEMENTED", str(CodedError("call-without-request")))


def test_connections_have_20_seconds():
    options = dict(channel_options(ServerSettings([])))
    assert options["grpc.server_handshake_timeout_ms"] <= 20_000
    for wait in ("grpc.keepalive_timeout_ms", "grpc.http2.ping_timeout_ms"):
        assert options["grpc.keepalive_time_ms"] + options[wait] <= 20_000
    assert options["grpc.keepalive_permit_without_calls"] == 1


def test_channel_arguments():
    text = "grpc.max_connection_age_ms=2000,grpc.lb_policy_name=grpclb,a=-1,b=99999999999"
    assert channel_arguments(text) == [
        ("grpc.max_connection_age_ms", 2000), ("grpc.lb_policy_name", "grpclb"), ("a", -1),
        ("b", "99999999999"),
    ]  # fmt: skip
    for wrong in ("a", "=1", "a=1,b"):
        with raises(Error, "unexpected"):
            channel_arguments(wrong)
    given = "grpc.keepalive_time_ms=7"
    options = channel_options(ServerSettings([], grpc_channel_arguments=given))
    assert ("grpc.keepalive_time_ms", 7) in options
    assert len(options) == len(dict(options))
