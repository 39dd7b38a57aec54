"""Runs of `deploykit infer` as processes, of which something is killed in the middle."""

import contextlib
import hashlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import psutil

from deploykit.transforms.runtime import child_main

os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"  # clusters listen on loopback alone

FILES, ROWS = 36, 10
_STEPS, _WIDTH = 120, 512
EVER = 120.0  # seconds, which no run takes


def write_work(folder: Path) -> list[str]:
    """Write a model that takes its time, and data of many parts; return the arguments for them."""
    import tensorflow as tf

    random = np.random.default_rng(5)
    with tf.Graph().as_default() as graph:
        x = tf.compat.v1.placeholder(tf.float32, (None, 3), "x")
        weights = tf.constant(random.normal(size=(_WIDTH, _WIDTH)) / _WIDTH**0.5, tf.float32)
        y = tf.matmul(x, tf.constant(random.normal(size=(3, _WIDTH)), tf.float32))
        for _ in range(_STEPS):
            y = tf.tanh(tf.matmul(y, weights))
        tf.reduce_sum(y, axis=1, name="y")
    (folder / "slow.pb").write_bytes(graph.as_graph_def().SerializeToString())
    (folder / "data").mkdir()
    for number in range(FILES):
        lines = [",".join(f"{value:.4f}" for value in row) for row in random.normal(size=(ROWS, 3))]
        (folder / "data" / f"{number:03}.csv").write_text("\n".join(lines) + "\n")
    columns = '{"format": 1, "columns": {"x": [0, 3]}}'
    return [str(folder / "slow.pb"), str(folder / "data"), "--preprocess", columns, "--batch", "1"]


def digests(folder: Path) -> dict[str, str]:
    """Return the SHA-256 of each file of results."""
    return {p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in sorted(folder.iterdir())}


class Run:
    """A command that runs."""

    def __init__(self, work: list[str], out: Path, *options: str, cwd: Path | None = None) -> None:
        model, data, *how = work
        self.out = out if cwd is None else cwd / out
        self.process = subprocess.Popen(
            [sys.executable, "-m", "deploykit", "infer", model, data, str(out), "--format", "npz",
             *how, *options],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=cwd,
        )  # fmt: skip

    def wait_for(self, parts: int) -> None:
        """Wait until so many parts are written."""
        end = time.monotonic() + EVER
        while len(list(self.out.glob("*-of-*.npz"))) < parts:
            assert self.process.poll() is None, self.process.communicate()
            assert time.monotonic() < end
            time.sleep(0.02)

    def ended(self) -> tuple[int, str]:
        """Wait for the end; return the status and what was said."""
        self.stdout, stderr = self.process.communicate(timeout=EVER)
        return self.process.returncode, self.stdout + stderr

    def kill(self) -> None:
        """Kill the command with what watches it, as no memory or a machine without power does."""
        (worker, *_) = psutil.Process(self.process.pid).children()
        worker.suspend()  # so that it does not end in its own way
        self.process.kill()
        worker.kill()
        self.process.communicate()


def descendants(pid: int) -> list[psutil.Process]:
    """Return all processes that a process has started, and those that these have."""
    return psutil.Process(pid).children(recursive=True)


def processes(*words: str) -> Iterator[psutil.Process]:
    """Yield the processes whose command line holds one of some words."""
    for each in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            line = " ".join(each.cmdline())
            if any(word in line for word in words) and each.status() != psutil.STATUS_ZOMBIE:
                yield each


ACTOR, WORKER = "ray::PartActor", f"-m {child_main.__name__} "


@contextlib.contextmanager
def nodes(count: int = 3) -> Iterator[object]:
    """Yield a cluster of a head without CPUs and some machines of one CPU, all of them here.

    It runs in a folder of its own, as one does that is somewhere else.
    """
    from ray.cluster_utils import Cluster

    with contextlib.chdir("/"):
        cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0})
        for _ in range(count):
            cluster.add_node(num_cpus=1)
    try:
        yield cluster
    finally:
        cluster.shutdown()
