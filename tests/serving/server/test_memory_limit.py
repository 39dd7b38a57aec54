"""A version that would exceed the memory limit is not served; all others are."""

import os
from types import SimpleNamespace

import grpc
import pytest

from deploykit.serving.lifecycle.model_config import ModelSettings
from deploykit.serving.protocol.errors import ServingError
from deploykit.serving.server import memory_limit
from deploykit.serving.server.memory_limit import MemoryLimit
from deploykit.serving.server.server import Server
from deploykit.serving.server.settings import ServerSettings
from tests.serving.served import Served, free_port
from tests.serving.server.test_server import half
from tests.serving.small_models import half_plus
from tests.support import lines_with, raises, shows
from tests.waiting import until

MIB = 1 << 20


@pytest.fixture
def used(monkeypatch):
    """The resident memory of this process in MiB, as the limit sees it; freed by `give_back`."""
    memory = SimpleNamespace(held=100, free=0)
    monkeypatch.setattr(memory_limit, "resident", lambda: (memory.held + memory.free) * MIB)
    monkeypatch.setattr(memory_limit, "give_back", lambda: setattr(memory, "free", 0))
    return memory


def version_of(folder, *sizes):
    """Write files of a version with these sizes in MiB, which take no space."""
    (folder / "variables").mkdir(parents=True)
    for number, size in enumerate(sizes):
        name = f"variables/variables.data-{number:05}-of-{len(sizes):05}"
        with open(folder / (name if number else "saved_model.pb"), "wb") as file:
            file.truncate(size * MIB)
    return folder


@pytest.mark.parametrize(
    ("limit", "workers", "fits"), [(200, 1, True), (199, 1, False), (400, 2, True), (399, 2, False)]
)
def test_the_weights_must_fit_beside_what_is_loaded(tmp_path, used, limit, workers, fits):
    used.free = 50
    bound, folder = MemoryLimit(limit, workers), version_of(tmp_path / "1", 40, 60)
    if fits:
        bound.check_files("m", 1, folder)
        return
    with raises(ServingError, "version-over-memory", model="m", version=1, got=200) as found:
        bound.check_files("m", 1, folder)
    assert found.value.status == "RESOURCE_EXHAUSTED"


def test_a_loaded_version_must_fit(used):
    bound = MemoryLimit(100)
    used.free = 50
    bound.check_loaded("m", 1)
    used.held = 101
    with raises(ServingError, "version-over-memory", model="m", version=1, got=101, most=100):
        bound.check_loaded("m", 1)
    MemoryLimit(None).check_loaded("m", 1)


def test_a_refused_version_is_loaded_again_only_if_it_may_fit(tmp_path, used):
    bound, folder = MemoryLimit(200), version_of(tmp_path / "1", 10)
    bound.check_files("m", 1, folder)
    used.held = 250
    with raises(ServingError, "version-over-memory", got=250):
        bound.check_loaded("m", 1)
    used.held = 100
    with raises(ServingError, "version-over-memory", got=250):
        bound.check_files("m", 1, folder)
    used.held = 40
    bound.check_files("m", 1, folder)


def test_a_version_beyond_the_limit_is_closed_and_the_others_serve(tmp_path, used, monkeypatch):
    model, closed = tmp_path / "m", []
    half_plus(model, 2, version=1)
    settings = ServerSettings([ModelSettings("m", model)], port=0, memory_limit=200,
                              max_num_load_retries=0, file_system_poll_wait_seconds=0)  # fmt: skip
    server = Server(settings)
    server.start()
    try:
        load = server._warm_up
        monkeypatch.setattr(server, "_warm_up", lambda servable: (
            load(servable), setattr(used, "held", 300),
            monkeypatch.setattr(servable, "close", lambda: closed.append(servable.version)),
        ))  # fmt: skip
        half_plus(model, 3, version=2)
        server.models.poll()
        until(lambda: server.models.status("m", 2)[0].code != "OK")
        [status] = server.models.status("m", 2)
        assert (status.code, closed) == ("RESOURCE_EXHAUSTED", [2])
        assert shows(status.message, "version-over-memory", model="m", got=300, most=200)
        assert server.available == {"m": [1]}
    finally:
        server.drain(0)


@pytest.mark.sampled
@pytest.mark.parametrize("workers", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_the_default_limit_refuses_a_version_larger_than_the_machine(tmp_path, workers):
    model = half_plus(half_plus(tmp_path / "m", 2, version=1), 2, version=2)
    with open(model / "00000002/variables/variables.data-00000-of-00001", "ab") as file:
        file.truncate(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    config = tmp_path / "models.config"
    policy = "model_version_policy { all {} }"
    config.write_text(
        f'model_config_list {{ config {{ name: "half_plus_two" base_path: "{model}" '
        f'model_platform: "tensorflow" {policy} }} }}'
    )
    server = Served(f"--model_config_file={config}", f"--rest_api_port={free_port()}",
                    f"--workers={workers}")  # fmt: skip
    try:
        assert server.document["models"] == {"half_plus_two": [1]}
        over = {"version": 2, "model": "half_plus_two"}
        assert len(lines_with(server.said, "version-over-memory", **over)) == 1
        assert list(server.predictions.Predict(half(), timeout=30).outputs["y"].float_val) == [3.0]
    finally:
        server.kill()


@pytest.mark.sampled
def test_a_limit_that_no_model_fits(tmp_path):
    server = Served(half_plus(tmp_path / "half_plus_two", 2), "--memory-limit=10")
    try:
        assert server.document["models"] == {"half_plus_two": []}
        assert shows(server.said, "version-over-memory", most=10)
        with pytest.raises(grpc.RpcError):
            server.predictions.Predict(half(), timeout=30)
    finally:
        server.kill()
