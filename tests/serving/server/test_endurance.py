"""A server that is asked wrongly, for long, or while its models change: it lives, and forgets."""

import random
import re
import shutil
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import grpc
import pytest

from deploykit.serving.protocol.protos import GetModelStatusRequest, PredictRequest
from tests.serving.served import Served
from tests.serving.small_models import half_plus
from tests.support import shows

PREDICT = "/tensorflow.serving.PredictionService/Predict"
MIB = 1 << 20


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return half_plus(tmp_path_factory.mktemp("models") / "half_plus_two", 2)


def write_config(base: Path, *names: str) -> Path:
    """Write the list of models, each in the folder of its name."""
    models = "".join(
        f'config {{ name: "{name}" base_path: "{base / name}" model_platform: "tensorflow" }}'
        for name in names
    )
    config = base / "models.config"
    config.write_text(f"model_config_list {{ {models} }}")
    return config


@pytest.fixture(scope="module")
def served(model):
    """A server for all tests; the folders of `swapped` and `broken` hold a first version."""
    base = model.parent
    for name in ("swapped", "broken"):
        (base / name).mkdir()
        publish(base / name, model / "00000123", 1)
    config = write_config(base, "half_plus_two", "swapped", "broken")
    server = Served(f"--model_config_file={config}", "--file_system_poll_wait_seconds=0.1",
                    "--max_num_load_retries=0", forked=False)  # fmt: skip
    yield server
    server.kill()


def predict(name="half_plus_two") -> PredictRequest:
    request = PredictRequest()
    request.model_spec.name = name
    request.inputs["x"].dtype = 1
    request.inputs["x"].tensor_shape.dim.add(size=1)
    request.inputs["x"].tensor_shape.dim.add(size=1)
    request.inputs["x"].float_val.append(2.0)
    return request


def flipped(content: bytes, random_: random.Random) -> bytes:
    changed = bytearray(content)
    for _ in range(random_.randint(1, 4)):
        changed[random_.randrange(len(changed))] ^= 1 << random_.randrange(8)
    return bytes(changed)


def resident(server: Served) -> int:
    """Return the bytes of memory that a process holds."""
    status = Path(f"/proc/{server.process.pid}/status").read_text()
    return int(re.search(r"VmRSS:\s+(\d+)", status)[1]) << 10


@pytest.mark.slow
def test_bit_flipped_requests_neither_end_it_nor_are_answered_with_unknown(served):
    """2,000 requests with up to four wrong bits."""
    call = served.channel.unary_unary(PREDICT)
    content, random_, codes = predict().SerializeToString(), random.Random(0), Counter()
    for _ in range(2000):
        try:
            call(flipped(content, random_), timeout=20)
            codes["OK"] += 1
        except grpc.RpcError as error:
            codes[error.code().name] += 1
    assert served.process.poll() is None
    assert "UNKNOWN" not in codes, codes
    assert "UNAVAILABLE" not in codes, codes
    assert codes["INVALID_ARGUMENT"] > 100, codes
    assert codes["OK"] > 10, codes
    assert list(served.predictions.Predict(predict(), timeout=20).outputs["y"].float_val) == [3.0]


@pytest.mark.sampled
def test_a_request_that_lies_about_its_size_takes_no_memory(served):
    """51 bytes that ask for 4 GiB, a hundred times."""
    request = predict()
    request.inputs["x"].tensor_shape.dim[0].size = 1 << 30
    assert len(request.SerializeToString()) < 64
    before = resident(served)
    for _ in range(100):
        with pytest.raises(grpc.RpcError) as error:
            served.predictions.Predict(request, timeout=20)
        assert error.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert resident(served) - before < 64 * MIB


class Callers:
    """Threads that ask a model on and on; which errors they saw."""

    def __init__(self, server: Served, name: str, count: int) -> None:
        self.server, self.name = server, name
        self.codes, self.over = Counter(), threading.Event()
        self.threads = [threading.Thread(target=self._ask) for _ in range(count)]

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        for thread in self.threads:
            thread.join(30)

    def _ask(self) -> None:
        request = predict(self.name)
        while not self.over.is_set():
            try:
                self.server.predictions.Predict(request, timeout=20)
                self.codes["OK"] += 1
            except grpc.RpcError as error:
                self.codes[f"{error.code().name}: {error.details()}"] += 1


def states(server: Served, name: str) -> dict[int, Any]:
    """Return the states of a model's versions."""
    request = GetModelStatusRequest()
    request.model_spec.name = name
    answer = server.models.GetModelStatus(request, timeout=20)
    return {each.version: each for each in answer.model_version_status}


def available(server: Served, name: str, version: int) -> bool:
    found = states(server, name)
    return version in found and found[version].state == 30


def publish(base: Path, source: Path, version: int) -> None:
    """Make a version appear at once, as `deploykit export` does."""
    hidden = base / f".{version}"
    shutil.copytree(source, hidden)
    hidden.rename(base / str(version))


def swap(server: Served, base: Path, source: Path, version: int) -> None:
    """Publish a version, wait until it serves, and take the one before away."""
    publish(base, source, version)
    for _ in range(600):
        if available(server, base.name, version):
            break
        threading.Event().wait(0.05)
    else:
        raise AssertionError(f"version {version} never served")
    shutil.rmtree(base / str(version - 1), ignore_errors=True)


@pytest.mark.sampled
@pytest.mark.parametrize("count", [5, pytest.param(100, marks=pytest.mark.slow)])
def test_no_call_fails_while_versions_are_swapped(model, served, count):
    base, source = model.parent / "swapped", model / "00000123"
    (newest,) = (int(each.name) for each in base.iterdir())
    with Callers(served, base.name, 4) as callers:
        for version in range(newest + 1, newest + 1 + count):
            swap(served, base, source, version)
    assert set(callers.codes) == {"OK"}, callers.codes
    assert callers.codes["OK"] > count


@pytest.mark.sampled
def test_a_broken_new_version_leaves_the_old_one_serving(model, served, tmp_path):
    base, source = model.parent / "broken", model / "00000123"
    broken = tmp_path / "broken"
    shutil.copytree(source, broken)
    content = (source / "saved_model.pb").read_bytes()
    (broken / "saved_model.pb").write_bytes(content[: len(content) // 2])
    with Callers(served, base.name, 2) as callers:
        publish(base, broken, 2)
        for _ in range(200):
            found = states(served, base.name)
            if 2 in found and found[2].state == 50:
                break
            threading.Event().wait(0.05)
    assert found[2].state == 50
    assert found[2].status.error_code != 0
    assert "truncated" in found[2].status.error_message
    assert found[1].state == 30
    assert set(callers.codes) == {"OK"}, callers.codes
    code = "FAILED_PRECONDITION"
    assert shows(served.said, "version-not-served", version=2, code=code)
    shutil.rmtree(base / "2")


@pytest.mark.sampled
def test_memory_stays_over_ten_thousand_requests(served):
    """At most 5 MiB after the first fifth."""
    for number in range(10_000):
        if number == 2000:
            before = resident(served)
        served.predictions.Predict(predict(), timeout=20)
    assert resident(served) - before <= 5 * MIB


@pytest.mark.sampled
@pytest.mark.parametrize(
    "reloads",
    [150, pytest.param(1000, marks=pytest.mark.full)],
)
def test_memory_stays_over_many_reloads(model, tmp_path, reloads):
    """At most 0.1 MiB for each after the first hundred, and 10 MiB."""
    base, source = tmp_path / "half_plus_two", model / "00000123"
    publish(base, source, 1)
    server = Served(base, "--file_system_poll_wait_seconds=0.05")
    try:
        for version in range(2, reloads + 2):
            swap(server, base, source, version)
            if version == 101:
                before = resident(server)
        assert resident(server) - before <= 10 * MIB + (reloads - 100) * MIB // 10
    finally:
        server.kill()
