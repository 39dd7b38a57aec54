"""Ray runs the same workers: the same bytes, whatever becomes of a worker, and nothing is left."""

import json
import os
import socket
import stat
import sys
import tempfile
import time
from contextlib import closing
from datetime import datetime
from pathlib import Path

import pytest

from deploykit.batch_inference import ray_cluster
from deploykit.batch_inference.ray_cluster import ADDRESS, check_ray
from deploykit.serving.client.endpoint import _check
from deploykit.serving.server.server_flags import ServerFlags
from deploykit.serving.server.settings import settings_of
from deploykit.transforms.common.errors import Error, FileError, GraphError
from tests.deploykit.batch_inference.killing import (
    EVER,
    FILES,
    ROWS,
    WORKER,
    Run,
    descendants,
    digests,
    write_work,
)
from tests.support import raises, says


@pytest.mark.slow
def test_a_cluster_of_its_own_writes_the_same_files_though_a_worker_is_killed(tmp_path):
    work = write_work(tmp_path)
    alone, on_ray = tmp_path / "alone", tmp_path / "ray"
    assert Run(work, alone, "--processes", "1").ended()[0] == 0
    run = Run(work, on_ray, "--scheduler", "ray", "--processes", "2", "--json")
    run.wait_for(2)
    ours = descendants(run.process.pid)
    next(each for each in ours if WORKER in " ".join(each.cmdline())).kill()
    status, said = run.ended()
    assert status == 0, said
    document = json.loads(run.stdout)  # there is nothing of Ray's beside it
    assert (document["rows"], len(document["shards"])) == (FILES * ROWS, FILES)
    told = document["run"]
    assert (told["scheduler"], told["workers"], told["lost"]) == ("ray", 2, 1)
    assert "raylet" not in said
    assert digests(on_ray) == digests(alone)
    end = time.monotonic() + EVER
    while any(each.is_running() and each.status() != "zombie" for each in ours):
        assert time.monotonic() < end
        time.sleep(0.1)


@pytest.mark.parametrize(
    ("given", "variable", "address"),
    [
        (None, None, "local"),
        (None, "10.0.0.7:6379", "10.0.0.7:6379"),
        ("local", "10.0.0.7:6379", "local"),
        ("auto", None, "auto"),
        ("[fd00::2]:6379", None, "[fd00::2]:6379"),
        ("head.example:6379", None, "head.example:6379"),
    ],
)
def test_the_address_is_what_is_given_or_what_ray_is_told_elsewhere(
    monkeypatch, given, variable, address
):
    monkeypatch.delenv(ADDRESS, raising=False)
    if variable is not None:
        monkeypatch.setenv(ADDRESS, variable)
    assert check_ray(given) == address


@pytest.mark.parametrize("address", ["here", "6379", "http://h:6379", "a:b", "h:", ":6379"])
def test_what_is_no_address_is_refused(address):
    with raises(GraphError, "unexpected"):
        check_ray(address)


def test_without_ray_it_is_said_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(GraphError, match=says("package-missing", extra="ray")):
        check_ray("local")


@pytest.mark.parametrize("listens", [True, False])
def test_where_no_cluster_answers_that_is_said_soon(monkeypatch, listens):
    monkeypatch.setattr(ray_cluster, "_SECONDS", 0.5)
    with closing(socket.socket()) as other:
        other.bind(("127.0.0.1", 0))
        if listens:
            other.listen()
        address = f"127.0.0.1:{other.getsockname()[1]}"
        begin = time.monotonic()
        with (
            raises(GraphError, "ray-head-missing", source=address),
            ray_cluster.ray_cluster(address, 1),
        ):
            pass
        assert time.monotonic() - begin < EVER


@pytest.mark.parametrize("length", [*range(20, 45), 110])
@pytest.mark.parametrize("letter", ["t", "\u00e9"])
def test_the_sockets_of_ray_fit_below_any_temporary_folder(tmp_path, monkeypatch, length, letter):
    with tempfile.TemporaryDirectory(dir="/tmp") as base:
        place = Path(base, letter * max(1, length - len(base) - 1))
        place.mkdir()
        monkeypatch.setattr(tempfile, "tempdir", str(place))
        with ray_cluster._short_folder() as folder:
            name = datetime.now().strftime(f"session_%Y-%m-%d_%H-%M-%S_%f_{2**22}")  # Ray's
            assert len(os.fsencode(f"{folder}/{name}/sockets/plasma_store")) <= 107
            assert stat.S_IMODE(os.stat(folder).st_mode) == 0o700
        assert not os.path.exists(folder)
        monkeypatch.setattr(ray_cluster, "_SHORT", "/missing")
        if length > 40 * len(letter):
            with (
                raises(FileError, "socket-path-too-long", most=107, hint=" (TMPDIR)"),
                ray_cluster._short_folder(),
            ):
                pass


@pytest.mark.parametrize("start", ["unix:", "unix://"])
def test_a_path_too_long_for_a_socket_is_refused(start):
    path = f"/{'s' * 106}"
    _check(f"{start}{path}")
    with raises(FileError, "socket-path-too-long", size=108, most=107):
        _check(f"{start}{path}s")
    with raises(FileError, "socket-path-too-long", size=108, most=107):
        settings_of(None, ServerFlags(grpc_socket_path=f"{path}s"))
    with pytest.raises(Error, match="model"):  # the path is right, but there is no model
        settings_of(None, ServerFlags(grpc_socket_path=path))


def test_importing_the_api_imports_no_ray(tmp_path):
    code = "import sys, deploykit; deploykit.infer; sys.exit('ray' in sys.modules)"
    assert os.system(f'"{sys.executable}" -c "{code}"') == 0
