"""The server's process is started once more for what is read at a start, and no more often."""

import os

import pytest

from deploykit.benchmarking.run_config import KEEP_MEMORY, RunConfig
from deploykit.cli import serving_flags
from deploykit.cli.serving_flags import prepare_environment


@pytest.fixture
def starts(monkeypatch):
    """The environments with which the program was started anew, none of which takes effect."""
    found: list[dict[str, str]] = []
    monkeypatch.setattr(serving_flags.os, "environ", dict(os.environ))
    for name in (*KEEP_MEMORY, "MALLOC_ARENA_MAX", "GLIBC_TUNABLES"):
        os.environ.pop(name, None)
    monkeypatch.setattr(serving_flags.os, "execve", lambda path, words, env: found.append(env))
    return found


@pytest.mark.parametrize(
    ("settings", "variable"),
    [
        (RunConfig(keep_memory=True), "MALLOC_TOP_PAD_"),
        (RunConfig(env={"MALLOC_ARENA_MAX": "2"}), "MALLOC_ARENA_MAX"),
    ],
)
def test_once_where_the_loader_takes_them_away(settings, variable, starts):
    """So it does from a Python that may do more than its user, such as bind port 443."""
    prepare_environment(settings, show_log=False)
    assert len(starts) == 1
    assert starts[0][variable]
    os.environ.clear()
    os.environ.update({k: v for k, v in starts[0].items() if k != variable})
    prepare_environment(settings, show_log=False)
    assert len(starts) == 1
    assert not [name for name in os.environ if name.startswith("DEPLOYKIT_STARTED")]


def test_not_at_all_where_nothing_is_read_at_a_start(starts):
    prepare_environment(RunConfig(onednn=False, executor="caller"), show_log=False)
    assert starts == []
    assert os.environ["TF_ENABLE_ONEDNN_OPTS"] == "0"


def test_a_server_that_has_them_is_not_started_anew(starts):
    os.environ["MALLOC_ARENA_MAX"] = "4"
    prepare_environment(RunConfig(env={"MALLOC_ARENA_MAX": "2"}), show_log=False)
    assert starts == []
