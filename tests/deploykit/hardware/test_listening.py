"""Cores of what listens here."""

import os
import socket

from deploykit.hardware.listening import cores_behind


def test_the_cores_of_this_process():
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        cores = len(os.sched_getaffinity(0))
        assert cores_behind(f"127.0.0.1:{port}") == cores
        assert cores_behind(f"localhost:{port}") == cores
    assert cores_behind(f"127.0.0.1:{port}") is None


def test_what_is_elsewhere_is_not_known():
    for address in ("192.0.2.1:8500", "host.example:8500", "unix:/tmp/x", "[2001:db8::1]:1", "x"):
        assert cores_behind(address) is None
