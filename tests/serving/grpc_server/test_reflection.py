"""Tools that keep a stream open, many of them: each is answered, and none is in another's way."""

import queue
from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest
from grpc_reflection.v1alpha.reflection_pb2 import (
    ServerReflectionRequest,
    ServerReflectionResponse,
)

from deploykit.serving.grpc_server import reflection
from tests.serving.server.test_operations import connected, served

TOOLS = 50
SYMBOL = ServerReflectionRequest(file_containing_symbol="tensorflow.TensorProto")
SERVICES = ServerReflectionRequest(list_services="")


class Tool:
    """One that asks, and keeps its stream open."""

    def __init__(self, channel: grpc.Channel, version: str) -> None:
        self._questions: queue.SimpleQueue[ServerReflectionRequest | None] = queue.SimpleQueue()
        self.stream = channel.stream_stream(
            f"/grpc.reflection.{version}.ServerReflection/ServerReflectionInfo",
            ServerReflectionRequest.SerializeToString,
            ServerReflectionResponse.FromString,
        )(iter(self._questions.get, None), timeout=20)

    def ask(self, question: ServerReflectionRequest) -> ServerReflectionResponse:
        self._questions.put(question)
        return next(self.stream)

    def end(self) -> None:
        self._questions.put(None)


@pytest.mark.sampled
def test_fifty_tools_that_stay_lock_out_nobody_and_hold_up_no_end():
    with served() as server, connected(server) as channel:
        tools = []
        for number in range(TOOLS):
            tools.append(Tool(channel, ("v1", "v1alpha")[number % 2]))
            assert tools[-1].ask(SYMBOL).file_descriptor_response.file_descriptor_proto
            assert tools[0 if number < 10 else number].ask(SERVICES).list_services_response
        staying = [each for each in tools if each.stream.is_active()]
        assert staying == tools[-reflection._OPEN :]  # those that asked last
        assert staying[0].ask(SYMBOL).file_descriptor_response
        assert server.drain(600)
        for each in staying:
            assert each.stream.code() is grpc.StatusCode.UNAVAILABLE
        for each in tools:
            each.end()


def test_tools_that_come_at_once_are_all_answered_or_make_room():
    with served() as server, connected(server) as channel:
        tools = [Tool(channel, "v1") for _ in range(TOOLS)]

        def answered(tool: Tool) -> bool:
            try:
                return bool(tool.ask(SERVICES).list_services_response.service)
            except (grpc.RpcError, StopIteration):
                return False

        with ThreadPoolExecutor(TOOLS) as asking:
            assert any(list(asking.map(answered, tools)))
        codes = {each.stream.code() for each in tools if not each.stream.is_active()}
        assert codes <= {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.OK}
        assert Tool(channel, "v1").ask(SERVICES).list_services_response.service
        for each in tools:
            each.end()
