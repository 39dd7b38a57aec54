"""`deploykit benchmark` as a user calls it: files, figures, wrong usage, what TensorFlow survives.

A start of TensorFlow takes seconds, so what one run tells is looked at in several tests.
"""

import csv
import hashlib
import json
import os
import pty
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from deploykit.benchmarking.results import load_result
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.node import Node
from tests.deploykit.benchmarking.nets import aborting, dense, hanging, placeholder, written
from tests.deploykit.conftest import command_line, refusals
from tests.support import Containing, assert_error, assert_golden, because, says, shows


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """One run with two batches, and every file that it can write."""
    folder = tmp_path_factory.mktemp("run")
    model = written(dense(), folder / "net.pb")
    names = {"-o": "result.json", "--csv": "result.csv", "--plot": "plot.svg", "--trace": "t.json"}
    options = [text for option, name in names.items() for text in (option, folder / name)]
    command = ("benchmark", model, "--batch=1,3", "--threads=1x1", "--concurrency=2",
               "--runs=40", *options)  # fmt: skip
    return command, command_line(*command, "--json")


@pytest.fixture
def net(tmp_path):
    return written(dense(), tmp_path / "net.pb")


def folder_of(run):
    return run[0][1].parent


def test_the_document(run):
    command, found = run
    assert (found.status, found.stderr) == (0, "")
    document = found.document
    assert document["command"] == "benchmark"
    assert (document["kind"], document["format"], document["interrupted"]) == (
        "benchmark",
        1,
        False,
    )
    assert document["input_file"] == str(command[1])
    assert (document["inputs"], document["outputs"], document["nodes_in"]) == (["x"], ["out"], 4)
    assert len(document["measurements"]) == 2
    for each, batch in zip(document["measurements"], (1, 3), strict=True):
        assert each["name"] == Containing(f"batch {batch}", "threads 1x1", "2 in flight")
        assert each["settings"] == {"batch": batch, "threads": [1, 1], "concurrency": 2}
        assert each["samples"] == batch
        assert [len(calls) for calls in each["rounds_ms"]] == [2] * 20
        assert each["sha256"] == hashlib.sha256(command[1].read_bytes()).hexdigest()
        assert each["profile"]


@pytest.mark.sampled
def test_variables_are_in_the_processes_that_ask_for_them(deploykit, net, tmp_path, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    affinity = "granularity=fine,compact,1,0"
    found = deploykit("benchmark", net, "--env", f"KMP_AFFINITY={affinity}", "--env",
                      "OMP_NUM_THREADS=2", "--env", "OMP_NUM_THREADS=", "--batch=1",
                      "--threads=1x1", "--runs=3", "--json")  # fmt: skip
    assert found.status == 0, found.stderr
    one, other = found.document["measurements"]
    assert one["settings"]["env"] == {"KMP_AFFINITY": affinity, "OMP_NUM_THREADS": "2"}
    assert other["settings"]["env"] == {"KMP_AFFINITY": affinity, "OMP_NUM_THREADS": None}
    seen = [each["facts"]["environment"] for each in (one, other)]
    assert [each["KMP_AFFINITY"] for each in seen] == [affinity, affinity]
    assert [each.get("OMP_NUM_THREADS") for each in seen] == ["2", None]


@pytest.mark.slow
def test_a_library_that_is_not_loaded_is_an_error(deploykit, net, tmp_path):
    library = str(tmp_path / "libnone.so")
    found = deploykit("benchmark", net, "--env", f"LD_PRELOAD={library}", "--runs=3", "--json")
    assert found.status == 2
    assert_error(found.error, "preload-missing", library=library)


def test_every_file_is_written(run):
    folder, document = folder_of(run), run[1].document
    assert json.loads((folder / "result.json").read_text()) == document
    names = [each["name"] for each in document["measurements"]]
    assert [each.name for each in load_result(folder / "result.json").measurements] == names
    header, *rows = csv.reader((folder / "result.csv").read_text().splitlines())
    figures = [dict(zip(header, row, strict=True)) for row in rows]
    assert [each["name"] for each in figures] == names
    for each, row in zip(document["measurements"], figures, strict=True):
        assert float(row["p50"]) == each["summary"]["p50"]
        assert float(row["items_per_second"]) == each["summary"]["items_per_second"]
        assert row["threads"] == "1x1"
    assert (folder / "plot.svg").read_text().rstrip().endswith("</svg>")
    trace = json.loads((folder / "t.json").read_text())
    assert any("y" in event.get("args", {}).values() for event in trace["traceEvents"])
    assert not list(folder.glob(".*"))


@pytest.mark.sampled
def test_force_replaces_a_file_and_text_is_a_table(net, deploykit, tmp_path):
    output = tmp_path / "result.json"
    output.write_text("old")
    found = deploykit("benchmark", net, "--seconds=0.3", "-o", output, "--force")
    assert (found.status, found.stderr) == (0, "")
    for word in ("net.pb", "p50 ms", "p99 ms", "items/s", "load ms", "peak memory", "warm-up"):
        assert word in found.stdout
    (measured,) = load_result(output).measurements
    assert len(measured.rounds_ms) == len(measured.turns)
    assert sum(measured.rounds_seconds) > 0


WRONG = (
    "--seconds=0", "--seconds=-1", "--seconds=nan", "--seconds=inf", "--runs=0", "--runs=-5",
    "--runs=many", "--batch=0", "--batch=8,-1", "--batch=1,", "--concurrency=0", "--threads=0x1",
    "--threads=0", "--threads=2x", "--threads=-1x1", "--threads=5000x1", "--onednn=yes",
    "--caller-thread=1", "--keep-memory=", "--device=tpu", "--device=gpu:-1", "--device=gpu:",
    "--input=queue", "--kmp-blocktime=-1", "--omp-num-threads=0", "--top=-1", "--timeout=0",
    "--timeout=-3", "--timeout=inf", "--memory-limit=0", "--input-range=1,-1", "--shape=x=1,9",
    "--shape=x=0,8", "--shape=z=1,8", "--outputs=gone", "--data=none.npz", "--tuned=none.json",
    "--plot=plot.jpg", "-o none/result.json", "--csv=same --trace=same",
)  # fmt: skip


@pytest.mark.golden("usage/benchmark")
def test_wrong_usage(net, deploykit):
    assert_golden(*refusals(deploykit, ("benchmark", net), WRONG, net.parent))
    assert list(net.parent.iterdir()) == [net]


@pytest.mark.sampled
def test_what_cannot_be_made_up_is_asked_for(deploykit, tmp_path):
    node = placeholder(dtype="resource")
    graph = Graph([node, Node("out", "LookupTableSizeV2", ("x",))])
    path = written(graph, tmp_path / "net.pb")
    for command in ("benchmark", "tune", "placement"):
        found = deploykit(command, path)
        assert (found.status, found.printed) == (2, ""), command
        assert shows(found.stderr, "synthetic-input-impossible")
        assert found.stderr.count("\n") == 1


@pytest.mark.sampled
def test_an_op_that_ends_the_process_is_refused(deploykit, tmp_path):
    path = written(aborting(), tmp_path / "abort.pb")
    for command in ("benchmark", "tune", "placement"):
        found = deploykit(command, path)
        assert (found.status, found.printed) == (3, "")
        assert "--allow-op Abort" in found.stderr


@pytest.mark.parametrize("command", ["benchmark", "tune", "placement"])
def test_a_crash_of_tensorflow_is_one_sentence(deploykit, tmp_path, command):
    path = written(aborting(), tmp_path / "abort.pb")
    out = tmp_path / "result.json"
    found = deploykit(command, path, "--allow-op=Abort", "-o", out)
    assert (found.status, found.printed) == (6, "")
    name = path.name if command == "benchmark" else path
    reason = Containing("Abort_op intentional failure; planted")
    died = says("child-died", source=name, runs="TensorFlow", signal="SIGABRT", reason=reason)
    assert re.match(f"deploykit: error: {died}$", found.stderr)
    assert found.stderr.count("\n") == 1
    assert not out.exists()


@pytest.mark.sampled
def test_a_model_that_hangs_is_given_up(deploykit, tmp_path):
    path = written(hanging(), tmp_path / "hang.pb")
    found = deploykit("benchmark", path, "--timeout=4", "--allow-op=QueueDequeueV2")
    assert (found.status, found.printed) == (6, "")
    assert shows(found.stderr, "child-timeout", runs="TensorFlow", seconds=4.0, source="hang.pb")


@pytest.mark.sampled
def test_no_gpu(deploykit, net):
    found = deploykit("benchmark", net, "--device=gpu", "--runs=1")
    if found.status == 0:
        pytest.skip("there is a GPU")
    assert (found.status, found.printed) == (2, "")
    assert_error(found.error, "device-refused", device="gpu")
    assert found.stderr.count("\n") == 1


@pytest.mark.slow
def test_ctrl_c_in_the_rounds_keeps_what_was_measured(net):
    """On a terminal, because the bar there tells when a round is done."""
    output = net.parent / "result.json"
    terminal, end = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "deploykit", "benchmark", str(net), "--seconds=9",
         "-o", str(output)],
        stdout=subprocess.PIPE, stderr=end, text=True,
        env=os.environ | {"TERM": "xterm", "COLUMNS": "100"},
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )  # fmt: skip
    os.close(end)
    shown = b""
    try:
        while shown.count(b"turns") < 30:  # the bar is drawn ten times a second
            shown += os.read(terminal, 4096)
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        process.send_signal(signal.SIGINT)
        while piece := _rest(terminal):
            shown += piece
        stdout, _ = process.communicate(timeout=60)
    finally:
        process.kill()
        process.wait()
        os.close(terminal)
    assert process.returncode == 130
    assert b"deploykit: interrupted" in shown
    assert "p50 ms" in stdout
    assert because("interrupted-so-far") in stdout
    result = load_result(output)
    assert result.interrupted
    assert sum(result.measurements[0].rounds_seconds) > 0
    assert children
    assert not [pid for pid in children if Path("/proc", pid).exists()]


def _rest(terminal: int) -> bytes:
    """Return what more there is; Linux answers with an error when the other end is closed."""
    try:
        return os.read(terminal, 4096)
    except OSError:
        return b""
