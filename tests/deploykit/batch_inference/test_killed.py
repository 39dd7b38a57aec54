"""Whatever is killed in the middle, all rows are there in the end, each once, and the same bytes.

Each kind of death is died ten times, once or twice in the slow tests: of processes of this machine,
and on a cluster of three machines of one CPU.
"""

import json
import os
import random
import time
from pathlib import Path

import pytest

import deploykit
from tests import pairwise
from tests.deploykit.batch_inference.killing import (
    ACTOR,
    EVER,
    FILES,
    WORKER,
    Run,
    descendants,
    digests,
    nodes,
    processes,
    write_work,
)
from tests.support import because, shows

DRAWN = random.Random(pairwise.seed())
EVEN, ODD = DRAWN.randrange(0, 10, 2), DRAWN.randrange(1, 10, 2)


def times(*slow: int) -> pytest.MarkDecorator:
    every = [pytest.param(number, marks=pairwise.marks(number, slow)) for number in range(10)]
    return pytest.mark.parametrize("number", every)


@pytest.fixture(scope="module")
def work(tmp_path_factory):
    return write_work(tmp_path_factory.mktemp("work"))


@pytest.fixture(scope="module")
def expected(work, tmp_path_factory):
    out = tmp_path_factory.mktemp("undisturbed")
    assert Run(work, out).ended()[0] == 0
    return digests(out)


@pytest.fixture(scope="module")
def cluster():
    with nodes(3) as found:
        yield found


@pytest.fixture(params=["local", "ray"])
def scheduler(request):
    """Return the options of a scheduler."""
    if request.param == "local":
        return []
    return ["--scheduler", "ray", "--address", request.getfixturevalue("cluster").address]


def check(run: Run, expected: dict[str, str]) -> str:
    """Let a run end, and check that it has all; return what it said."""
    status, said = run.ended()
    assert status == 0, said
    assert digests(run.out) == expected
    return said


@times(EVEN)
def test_a_worker(work, expected, scheduler, tmp_path, number):
    chance = random.Random(number)
    run = Run(work, tmp_path, *scheduler)
    run.wait_for(chance.randint(1, 20))
    kinds = [WORKER, ACTOR] if scheduler else [WORKER]
    ours = list(processes(chance.choice(kinds))) if scheduler else [
        each for each in descendants(run.process.pid) if WORKER in " ".join(each.cmdline())
    ]  # fmt: skip
    chance.choice(ours).kill()
    assert because("workers-lost", workers="1 worker") in check(run, expected)


@times(ODD)
def test_the_driver(work, expected, scheduler, tmp_path, number):
    run = Run(work, tmp_path, *scheduler)
    run.wait_for(random.Random(number).randint(1, 20))
    run.kill()
    if number % 2:  # the others go on while what was killed may still be ending
        end = time.monotonic() + EVER
        while list(processes(ACTOR, WORKER)):
            assert time.monotonic() < end
            time.sleep(0.1)
        assert len(digests(tmp_path)) < len(expected) + 3
    check(Run(work, tmp_path, *scheduler), expected)


@times(ODD)
def test_a_machine(work, expected, cluster, tmp_path, number):
    chance = random.Random(number)
    run = Run(work, tmp_path, "--scheduler", "ray", "--address", cluster.address)
    run.wait_for(chance.randint(1, 20))
    lost = chance.choice(sorted(cluster.worker_nodes, key=lambda each: each.unique_id))
    cluster.remove_node(lost, allow_graceful=False)
    try:
        check(run, expected)
    finally:
        cluster.add_node(num_cpus=1)


@pytest.mark.slow
def test_paths_below_the_folder_in_which_the_command_runs(work, expected, cluster, tmp_path):
    folder = Path(work[0]).parent
    model, data, *rest = work
    near = [model, os.path.relpath(data, folder), *rest]
    how = ["--scheduler", "ray", "--address", cluster.address]
    check(Run(near, Path("near"), *how, cwd=folder), expected)


@pytest.mark.slow
def test_a_full_object_store(work, expected, cluster, tmp_path):
    """Parts and what is told of them are so small that they need none."""
    import ray

    store = 150 << 20  # of each machine
    ray.init(cluster.address, log_to_driver=False)
    try:
        held = [ray.put(bytes(10 << 20)) for _ in range(store // (10 << 20) + 2)]
        check(Run(work, tmp_path, "--scheduler", "ray", "--address", cluster.address), expected)
        assert held
    finally:
        ray.shutdown()


@pytest.mark.slow
def test_a_program_that_is_connected_already_stays_so(work, expected, cluster, tmp_path):
    import ray

    model, data, _, preprocess, *_ = work
    ray.init(cluster.address, log_to_driver=False)
    try:
        how = {"preprocess": json.loads(preprocess), "batch": 1, "format": "npz"}
        found = deploykit.infer(model, data, tmp_path, scheduler="ray", **how)
        assert (found.run.scheduler, found.run.workers) == ("ray", 3)
        assert ray.is_initialized()
    finally:
        ray.shutdown()
    parts = {name: digest for name, digest in digests(tmp_path).items() if name.endswith(".npz")}
    assert parts == {name: expected[name] for name in parts}
    assert len(parts) == FILES


@pytest.mark.slow
def test_a_cluster_without_a_cpu(work, tmp_path):
    with nodes(0) as empty:
        how = ["--scheduler", "ray", "--address", empty.address, "--timeout", "12"]
        status, said = Run(work, tmp_path, *how).ended()
    assert status == 6
    assert "no CPU" in said
    assert shows(said, "workers-idle")
