"""What docs/cluster.md says was run: several servers behind one channel, and no call lost."""

import json
import subprocess
import sys
import threading
import time
from collections import Counter
from contextlib import ExitStack, closing
from pathlib import Path

import grpc
import numpy as np
import pytest

from deploykit.serving.client.client import predict_request
from deploykit.serving.protocol.protos import PredictRequest
from tests.serving.official_stubs import PredictionServiceStub
from tests.serving.served import free_port
from tests.serving.small_models import half_plus

pytestmark = pytest.mark.slow

IN_TURN = {
    "loadBalancingConfig": [{"round_robin": {}}],
    "healthCheckConfig": {"serviceName": ""},
}
CONFIG = """model_config_list {{ config {{
  name: "model" base_path: "{base}" model_platform: "tensorflow"
  model_version_policy {{ specific {{ versions: 1 versions: 2 }} }}
  version_labels {{ key: "stable" value: {stable} }}
  version_labels {{ key: "canary" value: 2 }}
}} }}
"""


class Replica:
    """A server on a port that it keeps over restarts."""

    def __init__(self, *arguments: object) -> None:
        self.port = free_port()
        self._arguments = arguments
        self.start()

    def start(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "deploykit", "serve", *map(str, self._arguments),
             f"--port={self.port}", "--lame_duck_seconds=2"],
            stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert self.process.stdout is not None
        assert any(line.startswith("serving") for line in self.process.stdout)

    def restart(self) -> None:
        self.process.terminate()
        assert self.process.wait(60) == 0
        self.start()

    def close(self) -> None:
        self.process.kill()
        self.process.wait()


class Callers:
    """Threads that call one channel to several servers, on and on."""

    def __init__(self, replicas: list[Replica], label: str = "") -> None:
        addresses = ",".join(f"127.0.0.1:{each.port}" for each in replicas)
        self.channel = grpc.insecure_channel(
            f"ipv4:{addresses}",
            [
                ("grpc.service_config", json.dumps(IN_TURN)),
                ("grpc.max_reconnect_backoff_ms", 1000),
            ],
        )
        self.statuses: Counter[str] = Counter()
        self.versions: list[int] = []
        self._sent = PredictRequest.FromString(
            predict_request("model", {"x": np.ones((1, 1), np.float32)},
                            label=label).SerializeToString()
        )  # fmt: skip
        self._over = threading.Event()
        self._threads = [threading.Thread(target=self._call) for _ in range(4)]
        for each in self._threads:
            each.start()

    def _call(self) -> None:
        predict = PredictionServiceStub(self.channel).Predict
        while not self._over.is_set():
            try:
                self.versions.append(predict(self._sent, timeout=20).model_spec.version.value)
                self.statuses["OK"] += 1
            except grpc.RpcError as error:
                self.statuses[error.code().name] += 1

    def close(self) -> None:
        self._over.set()
        for each in self._threads:
            each.join()
        self.channel.close()


def test_each_is_restarted_in_turn_and_no_call_is_lost(tmp_path):
    half_plus(tmp_path / "model", 2, version=1)
    with ExitStack() as stack:
        both = [stack.enter_context(closing(Replica(tmp_path))) for _ in range(2)]
        callers = stack.enter_context(closing(Callers(both)))
        time.sleep(1)
        for each in both:
            each.restart()
            time.sleep(3)  # until the channel has found it again
        before = callers.statuses["OK"]
        time.sleep(1)
        assert callers.statuses["OK"] > before > 100
    assert set(callers.statuses) == {"OK"}


def test_a_server_that_is_killed_is_seen():
    """So that the test above is seen to count what fails."""
    callers = Callers.__new__(Callers)
    callers.statuses, callers.versions = Counter(), []
    callers.channel = grpc.insecure_channel(f"ipv4:127.0.0.1:{free_port()}")
    callers._sent, callers._over = PredictRequest(), threading.Event()
    thread = threading.Thread(target=callers._call)
    thread.start()
    time.sleep(1)
    callers._over.set()
    thread.join()
    assert set(callers.statuses) == {"UNAVAILABLE"}


@pytest.mark.sampled
def test_a_canary_becomes_stable_and_goes_back(tmp_path):
    base = tmp_path / "model"
    for version in (1, 2):
        half_plus(base, version, version)
    config = tmp_path / "models.config"

    def name_stable(version: int) -> None:
        written = Path(f"{config}.new")
        written.write_text(CONFIG.format(base=base, stable=version))
        written.rename(config)

    name_stable(1)
    flags = (
        f"--model_config_file={config}",
        "--model_config_file_poll_wait_seconds=1",
        "--allow_version_labels_for_unavailable_models=true",
    )
    with ExitStack() as stack:
        replica = stack.enter_context(closing(Replica(*flags)))
        canary = stack.enter_context(closing(Callers([replica], "canary")))
        stable = stack.enter_context(closing(Callers([replica], "stable")))
        time.sleep(1)
        name_stable(2)
        time.sleep(4)
        name_stable(1)
        time.sleep(4)
    assert set(stable.statuses) == set(canary.statuses) == {"OK"}
    assert set(canary.versions) == {2}
    changes = [b for a, b in zip(stable.versions, stable.versions[1:], strict=False) if a != b]
    assert stable.versions[0] == stable.versions[-1] == 1
    assert 2 in changes
