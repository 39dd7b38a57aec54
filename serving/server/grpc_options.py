"""What gRPC is told about connections: sizes, patience, and who may share a port."""

from deploykit.serving.server.settings import ServerSettings
from deploykit.transforms.core.errors import Error

ChannelOption = tuple[str, str | int]

UNBOUNDED = -1
_HANDSHAKE_MS = 10_000  # until a client has said who it is
_PING_MS, _ANSWER_MS = 10_000, 5_000  # one that is gone is found within 15 s
_PATIENCE_MS = 5_000  # clients may ping this often


def channel_options(settings: ServerSettings) -> list[ChannelOption]:
    """Return the options of a server; what the user gave comes instead of ours.

    Error: as `channel_arguments`.
    """
    options: dict[str, str | int] = {
        "grpc.max_receive_message_length": settings.max_message_bytes,
        "grpc.max_send_message_length": UNBOUNDED,
        "grpc.so_reuseport": int(settings.workers > 1),
        "grpc.server_handshake_timeout_ms": _HANDSHAKE_MS,
        "grpc.keepalive_time_ms": _PING_MS,
        "grpc.keepalive_timeout_ms": _ANSWER_MS,
        "grpc.http2.ping_timeout_ms": _ANSWER_MS,  # else a minute, for those that are reachable
        "grpc.keepalive_permit_without_calls": 1,
        "grpc.http2.max_pings_without_data": 0,  # go on asking those that say nothing
        "grpc.http2.min_ping_interval_without_data_ms": _PATIENCE_MS,
    }
    return list({**options, **dict(channel_arguments(settings.grpc_channel_arguments))}.items())


def channel_arguments(text: str) -> list[ChannelOption]:
    """Read `key=value,key=value` as TensorFlow Serving does: whole numbers, else text.

    Error: it is written otherwise.
    """
    found: list[ChannelOption] = []
    for each in filter(None, text.split(",")):
        key, equals, value = each.partition("=")
        if not (key and equals):
            raise Error(
                "unexpected",
                what="--grpc_channel_arguments",
                got=each,
                expected="key=value, as grpc.max_connection_age_ms=2000",
            )
        whole = value.removeprefix("-").isdecimal() and abs(int(value)) < 1 << 31
        found.append((key, int(value) if whole else value))
    return found
