"""Settings: what a process starts with, every combination of a sweep, and their way to a file."""

import os
from dataclasses import fields, replace

import pytest

from deploykit.benchmarking.run_config import KEEP_MEMORY, RunConfig, renamed
from deploykit.benchmarking.run_config_grid import RunConfigGrid, beside_resident
from deploykit.benchmarking.tuning.search_space import TuneOptions
from deploykit.transforms.common.errors import GraphError
from deploykit.transforms.runtime.child_process import Worker
from tests.support import Containing, assert_golden, because, raises, refusal, showing, shows

OPENMP = {"KMP_BLOCKTIME": "0", "KMP_AFFINITY": "granularity=fine,compact,1,0"}
ALL = RunConfig(
    8, (2, 1), True, OPENMP | {"MALLOC_ARENA_MAX": None}, True, True, "bf16", 4, "tfdata", "gpu:1",
    "single", "openvino",
)  # fmt: skip


def test_nothing_is_set_unless_it_is_asked_for():
    assert RunConfig().environment == {}
    assert RunConfig().document() == {}
    assert str(RunConfig()) == "TensorFlow's defaults"


@pytest.mark.parametrize(
    ("settings", "environment"),
    [
        (RunConfig(onednn=True), {"TF_ENABLE_ONEDNN_OPTS": "1"}),
        (RunConfig(onednn=False), {"TF_ENABLE_ONEDNN_OPTS": "0"}),
        (RunConfig(keep_memory=True), KEEP_MEMORY),
        (RunConfig(keep_memory=False), dict.fromkeys(KEEP_MEMORY)),
        (RunConfig(env=OPENMP | {"A": None}), OPENMP | {"A": None}),
        (RunConfig(device="gpu", env={"CUDA_VISIBLE_DEVICES": "1"}), {"CUDA_VISIBLE_DEVICES": "1"}),
        (RunConfig(batch=8, threads=(1, 1), precision="bf16", concurrency=2, input="tfdata"), {}),
    ],
)
def test_the_environment(settings, environment):
    assert settings.environment == environment


def test_flags_of_xla_that_the_user_has_set_stay(monkeypatch):
    monkeypatch.setenv("TF_XLA_FLAGS", "--tf_xla_min_cluster_size=2 --tf_xla_auto_jit=1")
    found = RunConfig(xla=True).environment["TF_XLA_FLAGS"].split()
    assert found[:2] == ["--tf_xla_min_cluster_size=2", "--tf_xla_auto_jit=1"]
    assert found[2] == "--tf_xla_auto_jit=2"  # which is what was asked for; the last one counts


def test_a_gpu_run_sees_the_gpus_that_the_user_shows(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3")
    assert RunConfig(device="gpu").environment == {"CUDA_VISIBLE_DEVICES": "3"}
    assert RunConfig(device="cpu").environment == {}
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    assert RunConfig(device="all").environment == {"CUDA_VISIBLE_DEVICES": None}


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("settings", "seen"),
    [
        (RunConfig(), "1"),
        (RunConfig(onednn=False), "0"),
    ],
)
def test_what_the_user_has_set_wins_unless_an_option_says_otherwise(monkeypatch, settings, seen):
    monkeypatch.setenv("TF_ENABLE_ONEDNN_OPTS", "1")
    worker = Worker("os:getenv", "TF_ENABLE_ONEDNN_OPTS", forced=settings.environment)
    try:
        assert worker.created() == seen
    finally:
        worker.close()
    assert os.environ["TF_ENABLE_ONEDNN_OPTS"] == "1"


def test_memory_that_is_not_kept_is_so_whatever_the_user_has_set(monkeypatch):
    monkeypatch.setenv("MALLOC_TOP_PAD_", "1")
    worker = Worker("os:getenv", "MALLOC_TOP_PAD_", forced=RunConfig(keep_memory=False).environment)
    try:
        assert worker.created() is None
    finally:
        worker.close()


def test_in_words():
    assert str(ALL) == ", ".join([
        "OpenVINO", "batch 8", "threads 2x1", "oneDNN on", "keep memory on",
        "KMP_AFFINITY=granularity=fine,compact,1,0", "KMP_BLOCKTIME=0",
        "MALLOC_ARENA_MAX unset", "xla", "bf16", "4 in flight", "tfdata", "gpu:1",
        "executor single",
    ])  # fmt: skip


@pytest.mark.parametrize("settings", [RunConfig(), ALL])
def test_a_document_read_back_is_equal(settings):
    assert RunConfig.of(settings.document()) == settings


OTHERS = [
    {"speed": 9}, {"batch": 0}, {"batch": "8"}, {"batch": True}, {"threads": 2}, {"threads": [2]},
    {"threads": [2, -1]}, {"onednn": "on"}, {"keep_memory": 1}, {"xla": None}, {"concurrency": 0},
    {"kmp_blocktime": 5}, {"precision": "int8"}, {"bf16": "on"}, {"input": "queue"},
    {"input": ["feed"]}, {"device": "tpu"}, {"engine": "tflite"}, {"device": "gpu:"},
    {"omp_num_threads": 0}, {"caller_thread": "on"}, {"env": ["OMP_NUM_THREADS=2"]},
    {"env": {"OMP_NUM_THREADS": 2}}, {"env": {"LD_PRELOAD": "a.so"}}, {"env": {"PATH": None}},
    {"env": {"KMP_AFFINITY": "\n"}}, {"env": {"KMP_AFFINITY=1": "1"}},
    {"env": {"OMP_TOOL_LIBRARIES": "a.so"}}, {"env": {"MALLOC_CONF": "confirm_conf:true"}},
    {"env": {"KMP_STATS_FILE": "a"}},
]  # fmt: skip


@pytest.mark.golden("refusals/settings")
def test_documents_of_something_else():
    assert_golden(*(f"{each}\n{refusal(RunConfig.of, each)}" for each in OTHERS))


def test_a_sweep_is_every_combination():
    found = RunConfigGrid(batch=(1, 8), threads=((1, 1), (2, 1)), onednn=(False, True)).settings()
    assert len(found) == len(set(found)) == 8
    assert {(each.batch, each.threads, each.onednn) for each in found} == {
        (b, t, o) for b in (1, 8) for t in ((1, 1), (2, 1)) for o in (False, True)
    }
    assert RunConfigGrid().settings() == [RunConfig()]


def test_what_is_given_wins_over_a_tuned_file():
    base = RunConfig(8, (2, 1), onednn=False, concurrency=2, input="tfdata", device="gpu")
    assert RunConfigGrid(tuned=base).settings() == [base]
    sweep = RunConfigGrid(batch=(1,), onednn=(True,), concurrency=(1,), input="feed", device="cpu",
                  tuned=base)  # fmt: skip
    assert sweep.settings() == [RunConfig(1, (2, 1), onednn=True)]


def test_openmp_variables_are_compared_with_their_absence():
    found = RunConfigGrid(batch=(1, 8), kmp_blocktime="0", omp_num_threads=2).settings()
    assert found == [
        RunConfig(1),
        RunConfig(1, env={"KMP_BLOCKTIME": "0", "OMP_NUM_THREADS": "2"}),
        RunConfig(8),
        RunConfig(8, env={"KMP_BLOCKTIME": "0", "OMP_NUM_THREADS": "2"}),
    ]


def test_variables_are_swept_with_each_other_and_with_other_settings():
    grid = RunConfigGrid(env={"A": ["1", None], "B": ("x", "y"), "C": 1}, batch=(1, 8))
    found = grid.settings()
    assert len(found) == len(set(found)) == 8
    assert {(each.batch, each.env) for each in found} == {
        (batch, (("A", a), ("B", b), ("C", "1")))
        for batch in (1, 8) for a in ("1", None) for b in ("x", "y")
    }  # fmt: skip
    assert found[0].env == (("A", "1"), ("B", "x"), ("C", "1"))


def test_variables_of_a_tuned_file_are_kept_unless_others_are_given():
    base = RunConfig(env={"KMP_BLOCKTIME": "1", "OMP_NUM_THREADS": "2"})
    (found,) = RunConfigGrid(env={"KMP_BLOCKTIME": "5"}, tuned=base).settings()
    assert dict(found.env) == {"KMP_BLOCKTIME": "5", "OMP_NUM_THREADS": "2"}


@pytest.mark.parametrize(
    ("former", "given"),
    [
        ({"kmp_blocktime": "0"}, {"KMP_BLOCKTIME": "0"}),
        ({"kmp_affinity": "none"}, {"KMP_AFFINITY": "none"}),
        ({"omp_num_threads": 2}, {"OMP_NUM_THREADS": "2"}),
        ({"caller_thread": (True, False)}, {"TF_ONEDNN_THREADPOOL_USE_CALLER_THREAD": ["1", "0"]}),
    ],
)
def test_former_options_are_the_same_variables(former, given):
    assert RunConfigGrid(**former).settings()[-1] == RunConfigGrid(env=given).settings()[-1]
    (variable,) = given
    (name,) = former
    options = [f"--env {variable}", f"--{name.replace('_', '-')}"]
    with raises(GraphError, "give-one", options=options):
        RunConfigGrid(**former, env={variable: "7"}).settings()


def test_former_settings_of_a_file_are_the_same_variables(caplog):
    former = {"kmp_blocktime": "0", "kmp_affinity": "", "omp_num_threads": 2, "caller_thread": True}
    assert dict(RunConfig.of(former).env) == {
        "KMP_BLOCKTIME": "0", "KMP_AFFINITY": "", "OMP_NUM_THREADS": "2",
        "TF_ONEDNN_THREADPOOL_USE_CALLER_THREAD": "1",
    }  # fmt: skip
    assert RunConfig(**former, env={"A": "1"}) == RunConfig(
        env={"A": "1", **dict(RunConfig.of(former).env)}
    )
    assert not caplog.messages
    assert RunConfig.of({"batch": 2, "allocator": "tcmalloc"}) == RunConfig(2)
    ignored = {"name": "tcmalloc", "variables": Containing("LD_PRELOAD")}
    assert caplog.messages == [showing("allocator-ignored", **ignored)]


@pytest.mark.parametrize(
    ("settings", "variable"),
    [
        (RunConfig(onednn=True, env={"TF_ENABLE_ONEDNN_OPTS": "0"}), "TF_ENABLE_ONEDNN_OPTS"),
        (RunConfig(keep_memory=True, env={"MALLOC_TOP_PAD_": None}), "MALLOC_TOP_PAD_"),
        (RunConfig(xla=True, env={"TF_XLA_FLAGS": ""}), "TF_XLA_FLAGS"),
    ],
)
def test_a_variable_that_another_setting_sets_is_refused(settings, variable):
    with raises(GraphError, "variable-set-twice", variable=variable):
        settings.check_here()
    replace(settings, onednn=None, keep_memory=None, xla=False).check_here()


@pytest.mark.parametrize("given", [{"A": []}, {"A": 1.5}, {"A": {"B": "1"}}, {"A": [b"1"]}, "A=1"])
def test_values_that_no_variable_has_are_refused(given):
    with raises(GraphError, "variable-values"):
        RunConfigGrid(env=given).settings()
    with raises(GraphError, "variable-values"):
        TuneOptions(env=given).variables  # noqa: B018


def test_a_variable_that_deploykit_sets_itself_is_refused():
    with raises(GraphError, "variable-reserved", name="PYTHONPATH"):
        RunConfig(env={"PYTHONPATH": None}).check_here()
    override = RunConfig(device="gpu", precision="tf32", env={"NVIDIA_TF32_OVERRIDE": "0"})
    with raises(GraphError, "variable-set-twice", variable="NVIDIA_TF32_OVERRIDE"):
        override.check_here()


def test_another_malloc_is_not_for_openvino():
    env = {"LD_PRELOAD": "/a/libtcmalloc_minimal.so.4", "MALLOC_ARENA_MAX": "2"}
    assert dict(RunConfig(engine="openvino", env=env).in_engine.env) == {"MALLOC_ARENA_MAX": "2"}
    other = RunConfig(engine="openvino", env={"LD_PRELOAD": "/a/libfake.so"})
    assert other.in_engine == other


def test_results_of_several_allocators_differ():
    found = [renamed({"allocator": name}).get("env") for name in ("tcmalloc", "huge-pages", None)]
    assert found == [
        [("LD_PRELOAD", "libtcmalloc_minimal.so.4")],
        [("GLIBC_TUNABLES", "glibc.malloc.hugetlb=1")],
        None,
    ]


@pytest.mark.parametrize("name", ["", "A B", "A=", "1A", "Ä"])
def test_a_name_that_no_variable_can_have_is_refused(name):
    with raises(GraphError, "variable-name", name=name):
        RunConfig(env={name: "1"})
    with raises(GraphError, "variable-value", name="A"):
        RunConfig(env={"A": "\0"})


def test_what_is_fed_to_a_gpu_is_measured_beside_resident_inputs():
    found = beside_resident(
        [RunConfig(1, device="gpu"), RunConfig(1), RunConfig(8, input="tfdata")]
    )
    assert found == (RunConfig(1, device="gpu"), RunConfig(1, device="gpu", input="resident"),
                     RunConfig(1), RunConfig(8, input="tfdata"))  # fmt: skip


def test_executors_are_swept_by_name():
    found = RunConfigGrid(executor=("default", "caller"), batch=2).settings()
    assert [each.executor for each in found] == [None, "caller"]
    assert RunConfigGrid(executor="single").settings()[0].document() == {"executor": "single"}
    with raises(GraphError, "unexpected", what="executor", got="default"):
        RunConfig.of({"executor": "default"})


def test_tensorflow_has_one_name():
    assert RunConfig(engine="tensorflow") == RunConfig() == RunConfig.of({"engine": "tensorflow"})
    assert RunConfig(engine="tensorflow").document() == {}
    assert RunConfig(engine="openvino").document() == {"engine": "openvino"}


def test_engines_are_swept_by_name():
    found = RunConfigGrid(
        engine=("tensorflow", "openvino"), threads=((1, 1), (2, 1)), bf16=True
    ).settings()
    assert [str(each) for each in found] == [
        "threads 1x1, bf16", "threads 2x1, bf16",
        "OpenVINO, threads 1x1, bf16", "OpenVINO, threads 2x1, bf16",
    ]  # fmt: skip


def test_who_names_no_engine_leaves_it_to_the_model():
    assert not RunConfigGrid(threads=(2, 1)).names_engine
    assert RunConfigGrid(engine="tensorflow").names_engine
    assert RunConfigGrid(tuned=RunConfig()).names_engine


OF_TENSORFLOW = {
    "onednn": False, "env": {"KMP_BLOCKTIME": "0"}, "xla": True, "input": "tfdata",
    "executor": "caller", "threads": (2, 2),
}  # fmt: skip
OF_BOTH = {"batch": 8, "keep_memory": True, "precision": "bf16", "concurrency": 2,
           "threads": (2, 1), "env": {"MALLOC_ARENA_MAX": "2"}}  # fmt: skip


def test_each_setting_is_of_both_engines_or_of_one():
    others = {"engine", "device"}
    assert {*OF_TENSORFLOW, *OF_BOTH, *others} == {each.name for each in fields(RunConfig)}


@pytest.mark.parametrize("name", OF_TENSORFLOW)
def test_what_tensorflow_alone_has_is_left_out_with_a_word(name, caplog):
    alone = {name: OF_TENSORFLOW[name]}
    both = RunConfigGrid(engine=("tensorflow", "openvino"), **alone).settings()
    assert [each for each in both if each.engine is None] == RunConfigGrid(**alone).settings()
    other = (2, 1) if name == "threads" else None
    assert [each for each in both if each.engine] == [RunConfig(engine="openvino", threads=other)]
    (said,) = caplog.messages
    settings = Containing("OpenVINO ", str(RunConfig(**alone)).removeprefix("threads "))
    assert shows(said, "measured-without", reason=settings)
    with pytest.raises(GraphError, match=r"^OpenVINO "):
        RunConfigGrid(engine="openvino", **alone).settings()
    with pytest.raises(GraphError, match=r"^OpenVINO "):
        RunConfig(engine="openvino", **alone).check_here()
    tuned = RunConfigGrid(engine="openvino", tuned=RunConfig(**alone)).settings()
    assert tuned == [RunConfig(engine="openvino", threads=other)]


def test_variables_that_an_engine_does_not_use_are_named_with_their_setting():
    variables = {"OMP_NUM_THREADS": "2", "KMP_AFFINITY": "a b", "TF_X": None, "MALLOC_X": "1"}
    unused = "KMP_AFFINITY=a b, OMP_NUM_THREADS=2, TF_X unset"
    reason = because("engine-lacks-and-ignores", engine="OpenVINO", settings="oneDNN off",
                     variables=unused)  # fmt: skip
    settings = RunConfig(engine="openvino", env=variables, onednn=False)
    assert settings.left_out == reason
    with raises(GraphError, "settings-lacking", reason=reason):
        settings.check_here()
    alone = RunConfig(engine="openvino", env={"OMP_NUM_THREADS": "2"})
    unused = "OMP_NUM_THREADS=2"
    assert alone.left_out == because("engine-ignores", engine="OpenVINO", variables=unused)


@pytest.mark.parametrize("name", OF_BOTH)
def test_what_both_have_is_kept(name):
    found = RunConfig(engine="openvino", **{name: OF_BOTH[name]})
    assert found.in_engine == found
    assert found.left_out == ""
    found.check_here()


def test_ops_at_once_are_the_calls_in_flight():
    found = RunConfig(engine="openvino", threads=(1, 2), concurrency=2)
    assert found.in_engine == found
    assert RunConfig(engine="openvino", threads=(2, 3), concurrency=2).in_engine.threads == (2, 1)


def test_another_engine_is_run_on_the_cpu():
    with raises(GraphError, "engine-cpu-only", engine="OpenVINO", device="gpu:1"):
        RunConfig(engine="openvino", device="gpu:1").check_here()


def test_an_engine_that_is_not_here_is_refused_by_name(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with raises(GraphError, "engine-unavailable", engine="openvino"):
        RunConfig(engine="openvino").check_here()
    RunConfig(engine="tensorflow").check_here()
