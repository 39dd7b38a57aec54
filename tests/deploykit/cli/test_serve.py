"""`deploykit serve` as a user starts, calls and ends it."""

import errno
import json
import os
import re
import signal
import socket
import urllib.request
from dataclasses import fields

import click
import grpc
import pytest

from deploykit.api.tuning import tuned_flags
from deploykit.benchmarking.run_config import RunConfig as Tuned
from deploykit.cli.help import Headed
from deploykit.cli.serving_flags import WITHOUT_EFFECT, Flags
from deploykit.cli.value_types import TrueOrFalse
from deploykit.serving.lifecycle.model_config import ModelSettings, models_in
from deploykit.transforms.common.errors import Error, FileError, GraphError
from tests.deploykit.conftest import refusals
from tests.serving.certificates import Authority
from tests.serving.served import Served, free_port
from tests.serving.server.test_server import count
from tests.serving.slow_model import LONG, slow
from tests.support import Containing, assert_golden, because, raises, says, shows

UNAVAILABLE = grpc.StatusCode.UNAVAILABLE
DRAINING = "deploykit: " + because("draining") + "\n"
STEPS = 50_000  # a second or two


@click.command(cls=Flags)
@click.argument("folder", required=False)
@click.option("--model_name")
@click.option("--allow-op", "allowed", multiple=True)
@click.option("--enable_batching", cls=Headed, heading="Flags", type=TrueOrFalse(), default=False)
@click.option("--notes", cls=Headed, heading="Flags", type=TrueOrFalse(), default=True)
def flags(**given):
    return given


def parsed(*arguments):
    return flags.main(list(arguments), standalone_mode=False)


@pytest.mark.parametrize(
    ("arguments", "name", "value"),
    [
        (["--model_name=m"], "model_name", "m"),
        (["--model_name", "m"], "model_name", "m"),
        (["--model-name", "m"], "model_name", "m"),
        (["--model_name=a=b"], "model_name", "a=b"),
        (["--enable_batching"], "enable_batching", True),
        (["--enable_batching", "folder"], "enable_batching", True),
        (["--enable_batching=true"], "enable_batching", True),
        (["--enable_batching=0"], "enable_batching", False),
        (["--enable_batching", "true", "folder"], "folder", "folder"),
        (["--enable_batching", "false", "folder"], "enable_batching", False),
        (["--enable_batching", "--noenable_batching"], "enable_batching", False),
        (["--notes=false"], "notes", False),
        (["--nonotes"], "notes", False),
        (["--notes"], "notes", True),
        (["--allow_op", "A", "--allow-op=B"], "allowed", ("A", "B")),
        (["--", "--model_name"], "folder", "--model_name"),
        (["--num_load_threads", "4", "folder"], "folder", "folder"),
        (["--noenable_profiler", "folder"], "folder", "folder"),
    ],
)
def test_flags(arguments, name, value):
    assert parsed(*arguments)[name] == value


@pytest.mark.parametrize(
    ("argument", "words"),
    [
        ("--model_nam=m", says("missing", name="--model_nam", hint=Containing("--model_name?"))),
        ("--nomodel_name", says("missing", name="--nomodel_name", hint=Containing("--model_name"))),
        ("--noenable_batching=true", says("flag-takes-no-value", name="--noenable_batching")),
        ("--zzz", says("missing", name="--zzz")),
    ],
)
def test_wrong_flags(argument, words):
    with pytest.raises(Error, match=words):
        parsed(argument)


@pytest.mark.sampled
@pytest.mark.parametrize("name", WITHOUT_EFFECT)
def test_a_flag_without_effect_says_so_unless_it_asks_for_what_is(deploykit, name):
    held, reason = WITHOUT_EFFECT[name]
    found = deploykit("serve", f"--{name}=7")
    assert because("flag-without-effect", flag=f"--{name}", reason=reason) in found.stderr
    if held:
        assert not shows(deploykit("serve", f"--{name}={held}").stderr, "flag-without-effect")


def test_models_in_a_folder(tmp_path):
    one, two = tmp_path / "one", tmp_path / "two"
    for folder in (one / "1", one / "00000012", two / "7", tmp_path / "docs", tmp_path / ".git/1"):
        folder.mkdir(parents=True)
    (one / "1" / "saved_model.pb").touch()
    assert models_in(one) == (ModelSettings("one", one),)
    assert models_in(one, "m") == (ModelSettings("m", one),)
    assert models_in(tmp_path) == (ModelSettings("one", one), ModelSettings("two", two))
    with raises(GraphError, "base-path-several-models", count=2):
        models_in(tmp_path, "m")


@pytest.fixture
def shelf(tmp_path):
    """A folder with two folders of models, of which one can be loaded, and other things."""
    for version in ("deep/models/fashion/1", "deep/models/fashion/2", "deep/plain"):
        (tmp_path / version / "variables").mkdir(parents=True)
        (tmp_path / version / "saved_model.pb").touch()
    (tmp_path / "deep" / "empty" / "photos" / "2024").mkdir(parents=True)
    (tmp_path / "docs").mkdir()
    for file in ("deep/net.pb", "docs/text.txt"):
        (tmp_path / file).touch()
    return tmp_path


@pytest.mark.parametrize(
    ("given", "better"),
    [
        ("deep/models/fashion/1", "deep/models/fashion"),
        ("deep/models/fashion/1/variables", "deep/models/fashion"),
        ("deep/models/fashion/2/saved_model.pb", "deep/models/fashion"),
        ("deep", "deep/models"),
        (".", "deep/models"),
    ],
)
def test_the_folder_to_give_instead_works(shelf, given, better):
    """A folder of numbers that holds no SavedModel is not named: it would serve nothing."""
    kind = FileError if given.endswith(".pb") else GraphError
    with pytest.raises(kind) as error:
        models_in(shelf / given)
    assert str(error.value).endswith(f"give {shelf / better}")
    fashion = shelf / "deep" / "models" / "fashion"
    assert models_in(shelf / better) == (ModelSettings("fashion", fashion),)


EXPORT = "deploykit export {given} BASE_DIR"
EXPORT_PLAIN = "deploykit export {shelf}/deep/plain BASE_DIR"


@pytest.mark.parametrize(
    ("given", "kind", "code", "fields"),
    [
        ("deep/plain", GraphError, "base-path-empty", {"advice": EXPORT}),
        ("deep/plain/variables", GraphError, "base-path-empty", {"advice": EXPORT_PLAIN}),
        ("deep/net.pb", FileError, "base-path-not-folder", {"advice": EXPORT}),
        ("docs", GraphError, "base-path-empty", {"advice": "{given}/1|{given}/NAME/1"}),
        ("docs/text.txt", FileError, "base-path-not-folder", {"advice": "{shelf}/docs/1"}),
        ("nowhere", FileError, "base-path-unreadable", {"reason": os.strerror(errno.ENOENT)}),
    ],
)
def test_what_to_do_where_no_folder_works(shelf, given, kind, code, fields):
    fields = {
        name: Containing(*text.format(given=shelf / given, shelf=shelf).split("|"))
        for name, text in fields.items()
    }
    with raises(kind, code, source=shelf / given, **fields):
        models_in(shelf / given)


def test_several_folders_to_give_instead(shelf):
    (shelf / "deep" / "more" / "m" / "7").mkdir(parents=True)
    (shelf / "deep" / "more" / "m" / "7" / "saved_model.pb").touch()
    with raises(GraphError, "base-path-empty", source=shelf):
        models_in(shelf)


@pytest.fixture
def base(tmp_path):
    (tmp_path / "base" / "1").mkdir(parents=True)
    return tmp_path / "base"


def settings(*arguments, tuned=Tuned()):  # noqa: B008
    """Return what a command line comes to."""
    from deploykit.cli.build import build
    from deploykit.serving.server.server_flags import ServerFlags
    from deploykit.serving.server.settings import settings_of

    given = build("serve").make_context("serve", list(map(str, arguments))).params
    base_dir = given.pop("base_dir")
    names = [field.name for field in fields(ServerFlags)]
    flags = ServerFlags(**{name: given[name] for name in names})
    return settings_of(base_dir, *tuned_flags(flags, tuned, "tuned.json"))


def test_threads(base):
    cores = len(os.sched_getaffinity(0))

    def threads(*arguments, **more):
        found = settings(base, *arguments, **more)
        return found.loading.intra_op, found.loading.inter_op, found.slots

    assert threads() == (1, 0, cores)
    assert threads("--tensorflow_session_parallelism=2") == (2, 2, max(cores // 2, 1))
    assert threads("--tensorflow_intra_op_parallelism=0") == (0, 0, cores)
    assert threads("--tensorflow_inter_op_parallelism=3", "--slots=9") == (1, 3, 9)
    tuned = Tuned(threads=(2, 1), concurrency=3)
    assert threads(tuned=tuned) == (2, 1, 3)
    assert threads("--tensorflow_intra_op_parallelism=4", "--slots=1", tuned=tuned) == (4, 1, 1)


def test_limits(base):
    assert settings(base).max_in_flight == 64
    assert settings(base, "--grpc_max_threads=9").max_in_flight == 9
    assert settings(base, "--max_message_mb=3").max_message_bytes == 3 << 20
    assert settings(base, "--rest_api_port=0").rest_api_port is None
    assert settings(base).host == "127.0.0.1"


def test_a_base_path_may_be_empty_yet(tmp_path):
    found = settings(f"--model_base_path={tmp_path / 'later'}")
    assert found.models == (ModelSettings("default", tmp_path / "later"),)


WRONG = (
    "", "--model_base_path=/a /b", "/nowhere", "--model_config_file=/nowhere",
    "--model_config_file={file}",
    *(f"{{base}} {more}" for more in (
        "--ssl_config_file={file}", "--batching_parameters_file={file}",
        "--enable_batching --batching_parameters_file={file}",
        "--tensorflow_session_parallelism=1 --tensorflow_intra_op_parallelism=1",
        "--workers=2 --grpc_socket_path=/s", "--use_alts_credentials", "--rest_api_port=8500",
        "--grpc_channel_arguments=x", "--tuned={file}", "--file_system_poll_wait_second=1",
    )),
)  # fmt: skip


@pytest.mark.golden("usage/serve")
def test_what_is_wrong_is_said_in_one_sentence(deploykit, base, tmp_path):
    file = tmp_path / "file"
    file.write_text("nonsense: {")
    lines = [each.format(base=base, file=file) for each in WRONG]
    said = refusals(deploykit, ("serve",), lines, tmp_path)
    assert_golden(*(each.replace(str(base), "BASE") for each in said))


@pytest.fixture
def empty(tmp_path):
    """Return the flag for a list of no models: such a server needs no TensorFlow."""
    config = tmp_path / "models.config"
    config.write_text("model_config_list {}")
    return f"--model_config_file={config}"


@pytest.mark.sampled
def test_a_port_in_use(empty):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        server = Served(empty, f"--rest_api_port={port}", ready=False)
        status, said = server.ended()
    assert status == 4
    words = says("port-unavailable", source=f"127.0.0.1:{port}", flag="--rest_api_port", hint="")
    assert re.fullmatch(f"deploykit: error: {words}\n", said)


@pytest.mark.sampled
def test_a_port_in_use_is_said_before_tensorflow_starts(tmp_path):
    (tmp_path / "model" / "1").mkdir(parents=True)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = f"--rest_api_port={taken.getsockname()[1]}"
        server = Served(
            tmp_path / "model",
            port,
            ready=False,
            PYTHONPROFILEIMPORTTIME="1",
            TF_CPP_MIN_LOG_LEVEL="0",
        )
        status, said = server.ended()
    assert status == 4
    assert "deploykit.serving.server.process" in said
    assert "tensorflow.python" not in said


def test_what_grpc_says_is_a_line_without_a_traceback(empty):
    server = Served(empty)
    try:
        call = server.channel.unary_unary("/tensorflow.serving.PredictionService/Predict")
        assert call.future(b"\xff", timeout=30).code() is grpc.StatusCode.INTERNAL
        status, said = server.end(signal.SIGINT)
        assert status == 0
        lines = said.splitlines()
        assert len(lines) == 2, said
        assert lines[0] == Containing("gRPC", "Exception deserializing message!")
        assert lines[1].startswith("deploykit: draining")
    finally:
        server.kill()


def fill(server: Served, steps: int, count_of_calls: int) -> list[grpc.Future]:
    """Return calls that are in flight, as many as may be: one more was refused."""
    predict = server.predictions.Predict
    calls: list[grpc.Future] = []
    while True:
        calls = [call for call in calls if not call.done()]
        calls += [predict.future(count(steps)) for _ in range(count_of_calls - len(calls))]
        if predict.future(count(1)).code() is grpc.StatusCode.RESOURCE_EXHAUSTED and not any(
            call.done() for call in calls
        ):
            return calls


@pytest.mark.slow
def test_calls_in_flight_are_answered_at_the_end(tmp_path):
    server = Served(slow(tmp_path / "slow"), "--max_in_flight=2", "--slots=2")
    try:
        assert server.document["models"] == {"slow": [1]}
        calls = fill(server, STEPS, 2)
        server.process.send_signal(signal.SIGTERM)
        while server.predictions.Predict.future(count(1)).code() is not UNAVAILABLE:
            pass
        assert [call.result().outputs["y"].int_val[0] for call in calls] == [STEPS] * 2
        assert server.ended() == (0, DRAINING)
    finally:
        server.kill()


@pytest.mark.slow
def test_a_second_signal_ends_at_once_and_a_long_call_is_cut_off(tmp_path):
    base = slow(tmp_path / "slow")
    server = Served(base, "--max_in_flight=1", "--drain_seconds=600")
    try:
        fill(server, LONG, 1)
        server.process.send_signal(signal.SIGTERM)
        while server.said != DRAINING:
            assert server.process.poll() is None
        server.process.send_signal(signal.SIGTERM)
        assert server.ended() == (128 + signal.SIGTERM, DRAINING)
    finally:
        server.kill()
    server = Served(base, "--max_in_flight=1", "--drain_seconds=0.1")
    try:
        [call] = fill(server, LONG, 1)
        status, said = server.end()
        assert (status, call.code()) == (0, UNAVAILABLE)
        assert because("drain-cancelled") in said
    finally:
        server.kill()


@pytest.mark.slow
def test_tuned_settings_and_those_that_the_c_library_reads(tmp_path, empty):
    """The process is started once more for them; it is the same process, with the same number."""
    tuned = tmp_path / "tuned.json"
    recommended = {"keep_memory": True, "onednn": False, "caller_thread": False,
                   "threads": [1, 1]}  # fmt: skip
    tuned.write_text(json.dumps({"kind": "tuned", "format": 1, "settings": recommended}))
    server = Served(empty, f"--tuned={tuned}", TF_ENABLE_ONEDNN_OPTS="1")
    try:
        assert server.document["pid"] == server.process.pid
        with open(f"/proc/{server.process.pid}/environ") as file:
            environment = dict(each.split("=", 1) for each in file.read().split("\0") if each)
        assert environment["MALLOC_TOP_PAD_"] == "268435456"
        assert environment["TF_ENABLE_ONEDNN_OPTS"] == "1"
        assert environment["TF_ONEDNN_THREADPOOL_USE_CALLER_THREAD"] == "0"
        status, said = server.end()
        assert status == 0
        assert said == (
            Containing(f"{tuned} ", " oneDNN", "TF_ENABLE_ONEDNN_OPTS=1", f"{DRAINING}")
        )
    finally:
        server.kill()


@pytest.mark.slow
def test_rest_plain_is_said_and_makes_no_sense_alone(tmp_path):
    key, certificate = Authority(tmp_path).pair("server")
    config, tls = tmp_path / "models.config", tmp_path / "ssl.config"
    config.write_text("model_config_list {}")
    tls.write_text(f"server_key: {json.dumps(key)}\nserver_cert: {json.dumps(certificate)}\n")
    arguments = [f"--model_config_file={config}", f"--rest_api_port={free_port()}"]
    server = Served(*arguments, f"--ssl_config_file={tls}", "--rest_plain")
    try:
        url = server.document["rest_url"]
        assert url.startswith("http://")
        with urllib.request.urlopen(f"{url}/models", timeout=20) as answer:
            assert json.load(answer) == {"models": []}
        assert because("rest-plain") in server.said
    finally:
        server.kill()
    status, said = Served(*arguments, "--rest_plain", ready=False).ended()
    assert status == 2
    assert shows(said, "rest-plain-needs-tls")


def test_the_largest_document(base):
    from deploykit.serving.server.server import _limits

    def limits(*arguments):
        found = _limits(settings(base, *arguments))
        return found.body >> 20, found.flag

    assert limits() == (64, "--max_json_mb")
    assert limits("--max_json_mb=3") == (3, "--max_json_mb")
    assert limits("--max_json_mb=300") == (256, "--max_message_mb")
