"""A server of a folder, and the latency of requests to it compared with the original model.

Both versions have the same default signature, so both decode images and return class names. Clients
of the server see this speedup, not that of the model alone.
"""

import contextlib
import json
import math
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np
import psutil

from deploykit.api.exporting import export
from deploykit.api.shipped import UNFINISHED
from deploykit.benchmarking.run_config import CONFIDENCE
from deploykit.benchmarking.speed_verdict import LOOK_CONFIDENCE, SpeedVerdict
from deploykit.benchmarking.statistics import Ratio, student
from deploykit.benchmarking.system_load import Watch
from deploykit.client.call_options import LoadTestOptions
from deploykit.client.model_clients import prepared_calls
from deploykit.client.server_load import Generators
from deploykit.exporting.signatures import KNOWN
from deploykit.serving.client.endpoint import DEFAULT_CONNECTION
from deploykit.serving.client.load_generator import LoadStep
from deploykit.shipping.shipment import FROZEN, Shipment
from deploykit.system.cpu_usage import cpu_seconds
from deploykit.transforms.common.documents import document
from deploykit.transforms.common.errors import Error, LimitError, VerificationError
from deploykit.transforms.engines.engines import TENSORFLOW
from deploykit.transforms.ir.tensors import Array
from deploykit.transforms.runtime.child_process import limits, python_path

ROUNDS = 8
LOOK = 4  # rounds after which a conclusive measurement stops
SECONDS = 0.2, 0.75  # shortest (budget used up) and longest round of a server
MIN_MINUTES = 0.5  # smallest whole budget that is enough for a second server
_ENDING = 10.0  # seconds until a server is killed


@contextlib.contextmanager
def served(folder: Path, allow_ops: Sequence[str] = ()) -> Iterator[dict[str, Any]]:
    """Run `deploykit serve` on a folder, and yield its first document once it listens.

    LimitError: that took too long. VerificationError: it exited; the message contains the reason.
    """
    words = [word for op in allow_ops for word in ("--allow-op", op)]
    command = [sys.executable, "-P", "-m", "deploykit", "serve", str(folder), "--port=0",
               "--lame_duck_seconds=0", "--json", *words]  # fmt: skip
    environment = {**os.environ, UNFINISHED: "1", "PYTHONPATH": python_path()}
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                   stderr=log, text=True, env=environment)  # fmt: skip
        try:
            yield _listening(process, folder, log)
        finally:
            process.terminate()
            try:
                process.communicate(timeout=_ENDING)
            except subprocess.TimeoutExpired:
                process.kill()
                process.communicate()


def _listening(process: subprocess.Popen[str], folder: Path, log: IO[bytes]) -> dict[str, Any]:
    """Return the JSON document that a server prints once it listens."""
    assert process.stdout is not None
    deadline = threading.Timer(limits.seconds, process.kill)
    deadline.start()
    text = ""
    try:
        for line in process.stdout:
            text += line
            with contextlib.suppress(ValueError):
                results: dict[str, Any] = json.loads(text)
                return results
    finally:
        timed_out = not deadline.is_alive()
        deadline.cancel()
    if timed_out:
        raise LimitError("server-not-listening", source=folder, seconds=limits.seconds)
    process.wait()
    log.seek(0)
    lines = log.read().decode(errors="replace").strip().splitlines()
    why = lines[-1].removeprefix("deploykit: ") if lines else "it printed no reason"
    raise VerificationError("shipped-not-servable", source=folder, reason=why)


def request_speed(shipment: Shipment, address: str, inputs: Mapping[str, Array]) -> dict[str, Any]:
    """Measure the latencies of requests to the default signature, as plain data.

    One client sends interleaved requests to both servers. On a loaded machine, the measurement is
    repeated once if the budget allows it.

    Args:
        shipment: the exported shipment.
        address: address of a server of the shipped version.
        inputs: inputs of one request, by name.
    """
    if shipment.how.budget < MIN_MINUTES:
        return {"why": f"a --budget below {MIN_MINUTES:g} leaves no time to measure requests"}
    with contextlib.ExitStack() as stack:
        try:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="deploykit-")))
            _export_original(shipment, folder)
            other = stack.enter_context(served(folder, shipment.how.allow_ops))
            ends = [
                prepared_calls(item, shipment.name, inputs, LoadTestOptions(), DEFAULT_CONNECTION)
                for item in (f"127.0.0.1:{other['port']}", address)
            ]
            first, second = (
                stack.enter_context(Generators(end.endpoint, end.requests, 1)) for end in ends
            )
            seconds = min(max(60 * shipment.left / (4 * ROUNDS), SECONDS[0]), SECONDS[1])
            result = _measured(first, second, seconds)
            if result["loaded"] and 60 * shipment.left > 2 * ROUNDS * seconds:
                again = _measured(first, second, seconds)
                result = result if again["loaded"] else again
        except Error as error:
            return {"why": f"requests could not be measured: {error}"}
    return {"signature": ends[1].signature, **result}


def _export_original(shipment: Shipment, folder: Path) -> None:
    """Export the original model, run by TensorFlow, with the same signatures."""
    takes_images = "tensors" in shipment.document("export")["signatures"]
    export(
        shipment.to_change(FROZEN),
        folder,
        name=shipment.name,
        preprocess=KNOWN if takes_images else None,
        labels=shipment.how.labels,
        engine=TENSORFLOW,
        allow_ops=shipment.how.allow_ops,
    )


def _measured(first: Generators, second: Generators, seconds: float) -> dict[str, Any]:
    """Measure the median latencies of two servers in rounds and summarize them."""
    watch, began, rounds = Watch(), _cpu_seconds(), list[tuple[float, float]]()
    for number in range(ROUNDS):
        order = (first, second) if number % 2 else (second, first)
        step = LoadStep(seconds, callers=1)
        used = {id(item): item.measure(step).latency_ms["p50"] for item in order}
        rounds.append((used[id(first)], used[id(second)]))
        if len(rounds) == LOOK and SpeedVerdict(_gain(rounds, LOOK_CONFIDENCE), None).is_decided:
            break
    conditions = watch.conditions(_cpu_seconds() - began)
    return summed_up(rounds, conditions.busy)


def _cpu_seconds() -> float:
    """Return the CPU time of this process and its children, the servers and the client."""
    this = psutil.Process()
    return sum(cpu_seconds(item.pid) for item in (this, *this.children(recursive=True)))


def summed_up(rounds: list[tuple[float, float]], busy: str) -> dict[str, Any]:
    """Return the medians, ratio and verdict of latencies (before, after) in ms per round."""
    logs, ratio = np.log(np.array(rounds)), _gain(rounds)
    ends = map(_middle, logs.T)
    before, after = ({"value": it.value, "low": it.low, "high": it.high} for it in ends)
    return {
        "before_ms": before,
        "after_ms": after,
        "ratio": document(ratio),
        "verdict": SpeedVerdict(ratio, None, busy).verdict,
        "loaded": busy,
        "rounds_ms": [list(round_) for round_ in rounds],
    }


def _gain(rounds: list[tuple[float, float]], confidence: float = CONFIDENCE) -> Ratio:
    """Return the ratio of the latencies before and after, with its confidence interval."""
    logs = np.log(np.array(rounds))
    return _middle(logs[:, 0] - logs[:, 1], confidence)


def _middle(logs: Array, confidence: float = CONFIDENCE) -> Ratio:
    """Return the median of logarithms [rounds] and its confidence interval as a ratio."""
    degrees, reach = len(logs) - 1, math.inf
    if degrees:
        reach = student(confidence, degrees) * float(np.std(logs, ddof=1)) / math.sqrt(len(logs))
    return Ratio.around(float(np.median(logs)), reach, confidence)
