"""What `tune` recommends for a server is used, gives way to the user in one line, or is refused."""

import os
import random
from dataclasses import fields, replace

import pytest

import deploykit as api
from deploykit.api.tuning import check_batch, tuned_flags
from deploykit.benchmarking.run_config import KEEP_MEMORY, RunConfig
from deploykit.benchmarking.tuning.recommendation import to_set
from deploykit.serving.lifecycle.model_config import ModelSettings
from deploykit.serving.server.server_flags import ServerFlags
from deploykit.serving.server.settings import settings_of
from deploykit.transforms.common.errors import GraphError
from tests.serving.small_models import half_plus
from tests.support import Containing, because, raises, showing

RECOMMENDED = {
    "batch": 8, "threads": (2, 3), "onednn": False, "env": {"KMP_AFFINITY": "compact,1"},
    "keep_memory": True, "xla": True, "precision": "bf16", "concurrency": 5, "input": "tfdata",
    "device": "all", "executor": "caller", "engine": "openvino",
}  # fmt: skip
REFUSED = ("precision", "input", "device")
BY_OPTION = {
    "batch": {"enable_batching": False},
    "threads": {"tensorflow_session_parallelism": 1},
    "concurrency": {"slots": 4},
    "executor": {"tensorflow_inter_op_parallelism": 1},
    "engine": {"engine": "tensorflow"},
}
BY_VARIABLE = {
    "threads": {"TF_NUM_INTRAOP_THREADS": "7"},
    "onednn": {"TF_ENABLE_ONEDNN_OPTS": "1"},
    "env": {"KMP_AFFINITY": "none"},
    "keep_memory": {"MALLOC_TOP_PAD_": "1"},
    "xla": {"TF_XLA_FLAGS": "--tf_xla_auto_jit=0"},
}
READ = {name for variables in BY_VARIABLE.values() for name in variables} | {*KEEP_MEMORY}


@pytest.fixture
def base(tmp_path):
    half_plus(tmp_path / "half_plus_two", 2)
    return tmp_path / "half_plus_two"


@pytest.fixture
def served(base, monkeypatch, caplog):
    """Do as the command does; return its settings, the variables, and what it has said."""

    def serve(tuned, flags=None, variables=None):
        caplog.clear()
        for name in (*READ, "GLIBC_TUNABLES", "CUDA_VISIBLE_DEVICES"):
            monkeypatch.delenv(name, raising=False)
        for name, value in (variables or {}).items():
            monkeypatch.setenv(name, value)
        for name, value in to_set(tuned, os.environ).items():
            monkeypatch.setenv(name, value)
        with caplog.at_level("INFO", "deploykit"):
            found = settings_of(base, *tuned_flags(ServerFlags(**(flags or {})), tuned, "t.json"))
        held = {name: os.environ[name] for name in READ if name in os.environ}
        return found, held, [record.getMessage() for record in caplog.records]

    return serve


def tuned_for(*names):
    return replace(RunConfig(), **{name: RECOMMENDED[name] for name in names})


def test_every_setting_is_here():
    assert {field.name for field in fields(RunConfig)} == set(RECOMMENDED)
    assert {*BY_OPTION, *BY_VARIABLE, *REFUSED} == set(RECOMMENDED)


@pytest.mark.parametrize("name", RECOMMENDED)
def test_set_by_nobody_it_is_used_or_refused(name, served):
    if name in REFUSED:
        with raises(GraphError, "tuned-setting-not-served", name="t.json", field=name):
            served(tuned_for(name))
        return
    before, after = served(RunConfig()), served(tuned_for(name))
    assert after[:2] != before[:2]
    assert after[2] == []


@pytest.mark.parametrize("name", BY_OPTION)
def test_an_option_wins_and_that_is_said(name, served):
    before, after = (served(tuned, BY_OPTION[name]) for tuned in (RunConfig(), tuned_for(name)))
    assert after[:2] == before[:2]
    expected = {"file": "t.json", "settings": tuned_for(name), "given": Containing("--")}
    assert after[2]
    assert all(said == showing("tuned-overridden", **expected) for said in after[2])


@pytest.mark.parametrize("name", BY_VARIABLE)
def test_a_variable_wins_and_that_is_said(name, served):
    ((variable, value),) = BY_VARIABLE[name].items()
    found, held, said = served(tuned_for(name), variables=BY_VARIABLE[name])
    assert held == BY_VARIABLE[name]
    expected = {"file": "t.json", "settings": tuned_for(name), "given": f"{variable}={value}"}
    code = "tuned-overridden" if name == "threads" else "tuned-contradicted"
    assert said == [because(code, **expected)]
    if name == "threads":  # ops at once are not set, and follow the file
        assert (found.loading.intra_op, found.loading.inter_op) == (7, 3)


@pytest.mark.sampled
@pytest.mark.parametrize("seed", range(30))
def test_any_of_them_together(seed, served):
    """As many lines as the user holds settings; the others are used."""
    chance = random.Random(seed)
    able = [name for name in RECOMMENDED if name not in REFUSED]
    names = [name for name in able if chance.random() < 0.7]
    flags, variables, holding = {}, {}, []
    for name in names:
        way = chance.choice(["nobody", "option", "variable"])
        twice = name == "executor" and "tensorflow_session_parallelism" in flags
        if way == "option" and name in BY_OPTION and not twice:
            flags |= BY_OPTION[name]
        elif way == "variable" and name in BY_VARIABLE:
            variables |= BY_VARIABLE[name]
        else:
            continue
        holding.append(name)
    if {"tensorflow_session_parallelism", "tensorflow_inter_op_parallelism"} & set(flags):
        holding += [name for name in ("threads", "executor") if name in names]  # one holds both
    found, held, said = served(tuned_for(*names), flags, variables)
    assert {line.split(";")[0] for line in said} == {
        f"t.json recommends {tuned_for(name)}" for name in holding
    }
    assert variables.items() <= held.items()
    wanted = tuned_for(*(name for name in names if name not in holding))
    begun_with = {name: value for name, value in wanted.environment.items() if value is not None}
    assert begun_with.items() <= held.items()
    if wanted.batch:
        assert found.batching.largest == wanted.batch
    if wanted.concurrency > 1:
        assert found.slots == wanted.concurrency
    if wanted.threads:
        inter = -1 if wanted.executor else wanted.threads[1]
        assert (found.loading.intra_op, found.loading.inter_op) == (wanted.threads[0], inter)


def test_what_is_set_to_what_is_recommended_needs_no_word(served):
    flags = {"tensorflow_intra_op_parallelism": 2, "tensorflow_inter_op_parallelism": 3, "slots": 5}
    tuned = tuned_for("threads", "concurrency", "onednn")
    assert served(tuned, flags, {"TF_ENABLE_ONEDNN_OPTS": "0"})[2] == []


def test_calls_at_once_are_those_of_all_workers_and_no_more_than_are_let_in(served):
    found, _, said = served(tuned_for("concurrency"), {"workers": 2, "max_in_flight": 2})
    assert found.slots == 3
    expected = {"settings": Containing("5"), "given": "--max_in_flight=2"}
    assert said == [showing("tuned-overridden", **expected)]


def test_other_variables_of_the_c_library_hold_its_memory_too(served):
    tunables = {"GLIBC_TUNABLES": "glibc.malloc.arena_max=1"}
    _, held, said = served(tuned_for("keep_memory"), variables=tunables)
    assert held == {}
    given = "GLIBC_TUNABLES=glibc.malloc.arena_max=1"
    assert said == [showing("tuned-contradicted", settings=tuned_for("keep_memory"), given=given)]


def test_one_gpu_is_used_unless_it_is_hidden(served):
    assert served(RunConfig(device="gpu"))[2] == []
    said = served(RunConfig(device="gpu"), variables={"CUDA_VISIBLE_DEVICES": "-1"})[2]
    expected = {"settings": "gpu", "given": "CUDA_VISIBLE_DEVICES=-1"}
    assert said == [showing("tuned-contradicted", **expected)]


def test_a_process_that_has_begun_says_which_variables_it_lacks(base, monkeypatch, caplog):
    monkeypatch.delenv("TF_ENABLE_ONEDNN_OPTS", raising=False)
    with (
        caplog.at_level("INFO", "deploykit"),
        api.serve(base, port=0, tuned=RunConfig(onednn=False, batch=8)) as server,
    ):
        assert server.settings.batching.largest == 8
        rows = [[float(number)] for number in range(20)]  # more than a batch: in parts
        found = api.predict(server.address, "half_plus_two", {"x": rows})
        assert len(found.outputs["y"]) == 20
    expected = {"settings": "oneDNN off", "variables": "TF_ENABLE_ONEDNN_OPTS=0"}
    assert showing("tuned-not-started", **expected) in caplog.messages


def test_a_batch_is_refused_where_calls_bring_a_fixed_number(tmp_path):
    from deploykit.transforms.ir.graph import Graph
    from deploykit.transforms.ir.node import Node
    from deploykit.transforms.ir.tensors import DType

    dtype = DType("float32")
    x = Node("x", "Placeholder").with_attrs(dtype=dtype, shape=(2, 3))
    graph = Graph([x, Node("y", "Relu", ("x",)).with_attrs(T=dtype)], ["x"], ["y"])
    api.export(graph, tmp_path, name="fixed")
    with raises(GraphError, "tuned-batch-fixed", name="tuned", batch=8, model="fixed"):
        api.serve(tmp_path, port=0, tuned=RunConfig(batch=8))
    check_batch([ModelSettings("later", tmp_path / "nothing")], 8, "tuned")
    with api.serve(tmp_path, port=0, tuned=RunConfig(batch=8), enable_batching=False) as server:
        assert server.settings.batching is None
