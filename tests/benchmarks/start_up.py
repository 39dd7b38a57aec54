"""The answers that a user waits for most often: of commands on small graphs, and of a server."""

import http.client
import json
import socket
import subprocess
import tempfile
import time
from pathlib import Path

import numpy as np
import psutil

from tests.benchmarks.figures import Figure
from tests.benchmarks.measuring import Run, deploykit, in_turn, run

CHECKPOINT = Path(__file__).parents[2] / "models" / "fashion" / "tf1" / "model.ckpt"
SAMPLES = Path(__file__).parents[2] / "models" / "fashion" / "test_1000.npz"
AT_ONCE, SMALL = 0.3, 1.5  # seconds, without TensorFlow and with it
SERVERS = {"tensorflow": (1.2, 450.0), "openvino": (0.35, 110.0)}
"""By engine: seconds until the first right REST answer, and MiB that are resident then."""
STARTS = 20
_PAUSE, _PATIENCE = 0.002, 60.0  # seconds

TYPO = deploykit("transform", "--in_graph=a", "--out_graph=b", "--transforms=fold_constant")


def figures() -> list[Figure]:
    """Measure the commands in turn, then the servers."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        frozen, output = str(folder / "frozen.pb"), str(folder / "out.pb")
        run(deploykit("freeze", str(CHECKPOINT), "-o", frozen))
        commands = {
            "deploykit --help": (deploykit("--help"), AT_ONCE),
            "a typo in --transforms": (TYPO, AT_ONCE),
            "check a small graph": (deploykit("check", frozen), SMALL),
            "optimize it": (deploykit("optimize", frozen, "-o", output, "--force"), SMALL),
            "verify it": (deploykit("verify", frozen, frozen), SMALL),
            "judge it on 1,000 samples": (
                deploykit("accuracy", frozen, "--data", str(SAMPLES)),
                SMALL,
            ),
            "freeze a TF1 checkpoint": (
                deploykit("freeze", str(CHECKPOINT), "-o", output, "--force"),
                SMALL,
            ),
            "quantize its weights": (
                deploykit("quantize", str(CHECKPOINT), "-o", output, "--force"),
                None,
            ),
        }
        runs = in_turn({n: command for n, (command, _) in commands.items()}, check=False)
        found = [
            Figure(what, "s", [each.seconds for each in runs[what]], at_most=bar)
            for what, (_, bar) in commands.items()
        ]
        for engine in SERVERS:
            run(
                deploykit(
                    "export", frozen, str(folder / engine), "--name=net", f"--engine={engine}"
                )
            )
        return found + _servers({engine: folder / engine for engine in SERVERS})


def _servers(folders: dict[str, Path]) -> list[Figure]:
    found: dict[str, list[Run]] = {engine: [] for engine in folders}
    for _ in range(1 + STARTS):  # the first one warms up
        for engine, folder in folders.items():
            found[engine].append(_started(folder, engine))
    figures = []
    for engine, (seconds, mebibytes) in SERVERS.items():
        runs = found[engine][1:]
        figures += [
            Figure(f"serve with {engine}: first REST answer", "s", [r.seconds for r in runs],
                   at_most=seconds),
            Figure("... resident then", "MiB", [r.mebibytes for r in runs], at_most=mebibytes),
        ]  # fmt: skip
    return figures


def _started(folder: Path, engine: str) -> Run:
    """Start a server, wait for its first right answer, and end it. RuntimeError: there is none."""
    with np.load(SAMPLES) as samples:
        image = samples["images"][:1]
    body = json.dumps({"instances": image.tolist()})
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = deploykit("serve", str(folder), "--port=0", f"--rest_api_port={port}",
                        f"--engine={engine}", "--lame_duck_seconds=0")  # fmt: skip
    start = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        while (answer := _answer(port, body)) is None:
            if process.poll() is not None or time.perf_counter() - start > _PATIENCE:
                raise RuntimeError(f"{' '.join(command)} gives no answer")
            time.sleep(_PAUSE)
        seconds = time.perf_counter() - start
        return Run(seconds, psutil.Process(process.pid).memory_info().rss / (1 << 20), answer)
    finally:
        process.terminate()
        process.wait()


def _answer(port: int, body: str) -> str | None:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=_PATIENCE)
    try:
        connection.request("POST", "/v1/models/net:predict", body)
        response = connection.getresponse()
        content = response.read().decode()
        return content if response.status == http.client.OK else None
    except OSError:
        return None
    finally:
        connection.close()
