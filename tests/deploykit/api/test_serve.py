"""`deploykit.serve` from a notebook, and what asks such a server."""

import json
import socket
import threading
import urllib.request

import pytest

import deploykit as api
from deploykit.serving.client.endpoint import CallError
from deploykit.transforms.common.errors import Error, FileError, GraphError
from tests.serving.served import free_port
from tests.serving.small_models import half_plus
from tests.support import Containing, because, raises, shows


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    base = tmp_path_factory.mktemp("base")
    half_plus(base / "models" / "half_plus_two", 2)
    return base


def test_defaults_are_those_of_the_command():
    with pytest.raises(TypeError, match=Containing("'rest_port'", "rest_api_port").pattern):
        api.serve("models", rest_port=3)


def test_a_server_listens_until_it_is_closed(base):
    server = api.serve(base / "models", port=0, rest_api_port=free_port(), host="0.0.0.0")
    try:
        assert server.address == f"127.0.0.1:{server.port}"
        with urllib.request.urlopen(f"{server.rest_url}/models/half_plus_two", timeout=30) as page:
            [version] = json.load(page)["model_version_status"]
        assert version["state"] == "AVAILABLE"
        waiting = threading.Thread(target=server.wait)
        waiting.start()
        assert api.status(server.address).health == "SERVING"
        assert waiting.is_alive()
    finally:
        server.close()
    waiting.join(30)
    assert not waiting.is_alive()
    server.close()
    with raises(CallError, "server-unavailable"):
        api.status(server.address, retries=0)


def test_settings_that_tune_found_are_taken(base):
    tuned = api.RunConfig(threads=(2, 1), concurrency=3)
    with api.serve(base / "models", port=0, tuned=tuned, slots=5) as server:
        loading = server.settings.loading
        assert (loading.intra_op, loading.inter_op, server.settings.slots) == (2, 1, 5)


def test_what_cannot_listen_leaves_nothing_behind(base):
    before = threading.active_count()
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with raises(FileError, "port-unavailable", reason=because("port-in-use")):
            api.serve(base / "models", port=taken.getsockname()[1])
    assert threading.active_count() <= before + 1  # one that is about to end
    with raises(Error, "ports-equal"):
        api.serve(base / "models", port=7, rest_api_port=7)


def test_a_version_that_cannot_be_loaded_may_come_later(tmp_path, caplog):
    (tmp_path / "m" / "1").mkdir(parents=True)
    (tmp_path / "m" / "1" / "saved_model.pb").write_bytes(b"no model")
    with api.serve(tmp_path / "m", port=0) as server:
        assert server.models == {"m": []}
    assert shows(caplog.text, "not-a")


def test_a_list_that_cannot_be_served_is_an_error(tmp_path):
    config = tmp_path / "models.config"
    config.write_text(
        'model_config_list { config { name: "m" base_path: "/m" model_platform: "other" } }'
    )
    with raises(GraphError, "config-platform-unsupported", platform="other"):
        api.serve(model_config_file=config, port=0)


def test_an_interrupt_ends_what_still_begins(base, monkeypatch):
    """As Ctrl-C in a notebook, while the models are loaded."""
    from deploykit.serving.server import process

    drained = threading.Event()
    loading, go_on = threading.Event(), threading.Event()

    class Slow(process.Server):
        def start(self):
            loading.set()
            assert go_on.wait(30)
            super().start()

        def drain(self, seconds):
            found = super().drain(seconds)
            drained.set()
            return found

    def interrupted(*_):
        assert loading.wait(60)
        raise KeyboardInterrupt

    monkeypatch.setattr(process, "Server", Slow)
    monkeypatch.setattr(process, "wait", interrupted)
    with pytest.raises(KeyboardInterrupt):
        api.serve(base / "models", port=0)
    assert not drained.is_set()
    go_on.set()
    assert drained.wait(30)


@pytest.mark.slow
def test_workers(base):
    with api.serve(base / "models", port=0, workers=2) as server:
        found = api.predict(server.address, "half_plus_two", {"x": [[2.0]]})
        assert found.outputs["y"].tolist() == [[3.0]]
    with pytest.raises(CallError):
        api.status(server.address, retries=0)
