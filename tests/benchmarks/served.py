"""Servers in processes of their own, loads on them, and the bare session beside them."""

import contextlib
import functools
import os
import re
import shutil
import statistics
import struct
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from deploykit.serving.client.client import Client
from deploykit.serving.protocol.codec import encode
from deploykit.serving.protocol.protos import PredictRequest
from deploykit.serving.server.config_files import METRICS_PATH
from deploykit.transforms.ir.tensors import Array
from tests.benchmarks.measuring import deploykit

METHOD = "/tensorflow.serving.PredictionService/Predict"
_RATE = re.compile(r"finished in [^,]+, ([0-9.]+) req/s")
_STARTED = 60.0  # seconds


class Server:
    """`deploykit serve` of a folder of models, on a port of its own choice."""

    def __init__(self, folder: Path, *flags: str) -> None:
        """Start it, and wait until it listens."""
        command = deploykit("serve", str(folder), "--port=0", *flags)
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        found = re.search(r"127\.0\.0\.1:(\d+)", self.process.stdout.readline())
        if found is None:
            self.process.kill()
            sys.exit(f"{' '.join(command)} does not say where it listens")
        self.address = found[0]
        threading.Thread(target=self.process.stdout.read, daemon=True).start()

    def ready(self, model: str) -> None:
        """Wait until a model is available. SystemExit: it never is."""
        end = time.monotonic() + _STARTED
        with Client(self.address) as client:
            while not any(each.state == "AVAILABLE" for each in client.status(model)):
                if time.monotonic() > end:
                    sys.exit(f"{model} is not available after {_STARTED:g} seconds")
                time.sleep(0.1)

    def cpu(self) -> float:
        """Return the CPU seconds that it has used."""
        used = psutil.Process(self.process.pid).cpu_times()
        return float(used.user + used.system)

    def close(self) -> int:
        """End it as a user does, and return its exit status."""
        self.process.terminate()
        return self.process.wait(30)


@contextlib.contextmanager
def serving(folder: Path, models: Sequence[str], *flags: str) -> Iterator[Server]:
    """Serve models while the block runs."""
    server = Server(folder, *flags)
    try:
        for model in models:
            server.ready(model)
        yield server
    finally:
        server.close()


@contextlib.contextmanager
def apart() -> Iterator[Callable[[], None]]:
    """Keep this process, and what it starts, on one half of the cores.

    What is given moves it to the other half, but for what has been started: a server does not
    share its cores with its clients then, as on machines of their own.
    """
    cores = sorted(os.sched_getaffinity(0))
    half = len(cores) // 2
    try:
        os.sched_setaffinity(0, cores[:half] or cores)
        yield lambda: os.sched_setaffinity(0, cores[half:])
    finally:
        os.sched_setaffinity(0, cores)


def sample(shape: tuple[int, ...], dtype: str = "float32") -> Array:
    """Return random numbers for an input: from 0 to 1, or bytes."""
    random = np.random.default_rng(0)
    if dtype == "uint8":
        return random.integers(0, 256, shape, np.uint8)
    return random.random(shape, np.float32)


def request(model: str, alias: str, array: Array, signature: str = "") -> PredictRequest:
    """Return a request for one answer."""
    made = PredictRequest()
    made.model_spec.name, made.model_spec.signature_name = model, signature
    made.inputs[alias].CopyFrom(encode(array, as_content=True))
    return made


def per_second(server: Server, body: PredictRequest, callers: int, seconds: float) -> float:
    """Return the answers per second to so many callers, each with one call in flight.

    h2load is written in C, so it leaves the cores to the server; it does not read gRPC's status,
    so one call before and one after must be right.
    """
    _check(server, body)
    with _h2load(server, body, f"-c{callers}", "-m1", f"-D{seconds:g}", "--warm-up-time=1") as load:
        output = load.communicate()[0]
    _check(server, body)
    found = _RATE.search(output)
    if found is None:
        sys.exit(f"h2load says no rate: {output[-500:]}")
    return float(found[1])


def cpu_per_call(server: Server, body: PredictRequest, callers: int, seconds: float) -> float:
    """Return the CPU milliseconds that a server takes for a call of so many callers."""
    calls = max(100, round(seconds * per_second(server, body, callers, 1)))
    start = server.cpu()
    with _h2load(server, body, f"-c{callers}", "-m1", f"-n{calls}") as load:
        output = load.communicate()[0]
    spent = server.cpu() - start
    _check(server, body)
    if f" {calls} succeeded" not in output:
        sys.exit(f"h2load says that calls failed: {output[-500:]}")
    return 1000 * spent / calls


@contextlib.contextmanager
def flooded(server: Server, body: PredictRequest, rate: float, seconds: float) -> Iterator[None]:
    """Send requests at random times (Poisson), so many a second, whatever becomes of them."""
    gaps = np.random.default_rng(0).exponential(1000 / rate, round(rate * seconds))
    with tempfile.NamedTemporaryFile("w") as file:
        file.writelines(f"{at:.3f}\thttp://{server.address}{METHOD}\n" for at in gaps.cumsum())
        file.flush()
        script = f"--timing-script-file={file.name}"
        with _h2load(server, body, "-c1", "-m1000", script) as load:
            yield
            output = load.communicate()[0]
            if load.returncode:
                sys.exit(f"h2load failed: {output[-500:]}")


@contextlib.contextmanager
def _h2load(
    server: Server, body: PredictRequest, *options: str
) -> Iterator["subprocess.Popen[str]"]:
    content = body.SerializeToString()
    with tempfile.NamedTemporaryFile() as file:
        file.write(b"\0" + struct.pack(">I", len(content)) + content)
        file.flush()
        command = ["h2load", "-t1", *options, "-d", file.name, "-H", "te: trailers",
                   "-H", "content-type: application/grpc",
                   f"http://{server.address}{METHOD}"]  # fmt: skip
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as load:
            yield load


def answered(port: int) -> int:
    """Return how many calls were answered with OK, by the page of metrics on a server's port."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{METRICS_PATH}", timeout=30) as page:
        text = page.read().decode()
    return sum(int(n) for n in re.findall(r'request_count{.*status="OK"} (\d+)', text))


def probed(
    server: Server, body: PredictRequest, rate: float, seconds: float
) -> tuple[list[float], list[float]]:
    """Send a few requests a second; return the milliseconds of those accepted and refused."""
    found: dict[str, list[float]] = {"OK": [], "RESOURCE_EXHAUSTED": []}

    def note(call: Any, start: float) -> None:
        found.setdefault(call.code().name, []).append(1000 * (time.perf_counter() - start))

    with _predicts(server) as predict:
        calls = []
        for _ in range(round(rate * seconds)):
            start = time.perf_counter()
            calls.append(predict.future(body, timeout=30))
            calls[-1].add_done_callback(functools.partial(note, start=start))
            time.sleep(1 / rate)
        for call in calls:
            call.code()  # waits for it
    accepted, refused, *others = found.values()
    if others or not (accepted and refused):
        sys.exit(f"an overload should accept some requests and refuse others, not {list(found)}")
    return accepted, refused


def latency(server: Server, body: PredictRequest, calls: int) -> float:
    """Return the median milliseconds of one caller's calls."""
    with _predicts(server) as predict:
        return _median(lambda: predict(body, timeout=30), calls)


def slow_percentile(server: Server, body: PredictRequest, calls: int) -> float:
    """Return the 99th percentile of one caller's calls, in milliseconds."""
    with _predicts(server) as predict:
        return float(np.percentile(_times(lambda: predict(body, timeout=30), calls), 99))


def slowest(server: Server, body: PredictRequest, calls: int) -> float:
    """Return the milliseconds of the longest of one caller's calls, each repeated until let in."""
    with _predicts(server) as predict:
        return max(_times(lambda: _accepted(predict, body), calls))


def _check(server: Server, body: PredictRequest) -> None:
    with _predicts(server) as predict:
        _accepted(predict, body)


def _accepted(predict: Any, body: PredictRequest) -> None:
    """Repeat a request until it is accepted."""
    import grpc

    while True:
        try:
            predict(body, timeout=30)
            return
        except grpc.RpcError as error:
            if error.code() != grpc.StatusCode.RESOURCE_EXHAUSTED:
                raise


@contextlib.contextmanager
def _predicts(server: Server) -> Iterator[Any]:
    import grpc

    from tests.serving.official_stubs import PredictionServiceStub

    with grpc.insecure_channel(server.address) as channel:
        yield PredictionServiceStub(channel).Predict


def _median(call: Callable[[], object], calls: int, rest: float = 0.0) -> float:
    for _ in range(20):
        call()
    return statistics.median(_times(call, calls, rest))


def _times(call: Callable[[], object], calls: int, rest: float = 0.0) -> list[float]:
    times = []
    for _ in range(calls):
        if rest:
            time.sleep(rest)
        start = time.perf_counter()
        call()
        times.append(1000 * (time.perf_counter() - start))
    return times


class Bare:
    """The session alone, called in threads of one process; this lives in a child process."""

    def __init__(
        self,
        folder: str,
        intra_op: int,
        alias: str,
        shape: tuple[int, ...],
        signature: str = "serving_default",
    ) -> None:
        """Load a version directory."""
        from deploykit.serving.execution.engines.engine import Loading
        from deploykit.serving.execution.engines.open_version import open_version

        self._servable = open_version(Path(folder), "bare", 1, Loading(intra_op))
        chosen = self._servable.signatures[signature]
        self._feeds = {alias: sample(shape, chosen.inputs[alias].dtype)}
        self._signature = signature
        self._outputs = list(chosen.outputs)

    def _run(self) -> None:
        self._servable.run(self._signature, self._feeds, self._outputs)

    def latency(self, calls: int, rest: float = 0.0) -> float:
        """Return the median milliseconds of a call, with so many seconds between them."""
        return _median(self._run, calls, rest)

    def per_second(self, threads: int, seconds: float) -> float:
        """Return the answers per second of so many threads."""
        self._run()
        start = time.monotonic()
        return _calls(self._run, threads, seconds) / (time.monotonic() - start)

    def cpu_per_call(self, threads: int, seconds: float) -> float:
        """Return the CPU milliseconds of a call by TensorFlow's own `make_callable`.

        Its ops run one by one in the thread of the caller, as the server's do.
        """
        import tensorflow as tf

        signature = self._servable.signatures[self._signature]
        session: Any = self._servable._engines[self._signature]
        session = session._session
        ((alias, array),) = self._feeds.items()
        outputs = [tensor.name for tensor in signature.outputs.values()]
        inputs = [signature.inputs[alias].name]
        run = session.make_callable(outputs, inputs, accept_options=True)
        options = tf.compat.v1.RunOptions(inter_op_thread_pool=-1)
        run(array, options=options)
        start = time.process_time()
        calls = _calls(lambda: run(array, options=options), threads, seconds)
        return 1000 * (time.process_time() - start) / calls


def _calls(run: Callable[[], object], threads: int, seconds: float) -> int:
    """Return how many calls so many threads made."""
    counts = [0] * threads
    end = time.monotonic() + seconds

    def go(number: int) -> None:
        while time.monotonic() < end:
            run()
            counts[number] += 1

    workers = [threading.Thread(target=go, args=(number,)) for number in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return sum(counts)


def needs_h2load() -> None:
    """SystemExit: h2load is not installed."""
    if shutil.which("h2load") is None:
        sys.exit("this benchmark needs h2load (apt-get install nghttp2-client)")
