"""A standard output that cannot be written changes no result of a command."""

import io
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from deploykit.cli import main
from deploykit.cli.standard_output import StandardOutput
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.node import Node
from deploykit.transforms.ir.tensors import DType
from tests.pairwise import once_each
from tests.support import shows

SCRIPT = Path(sys.executable).with_name("deploykit")
CLOSED, FULL, NO_READER = ">&-", "> /dev/full", "| true"


@pytest.fixture
def shell(tmp_path):
    """Run deploykit with an end of the command line that bash reads."""
    x = Node("x", "Placeholder").with_attrs(dtype=DType("float32"), shape=(2, 3))
    for name, value in (("f.pb", 1), ("q.pb", 2)):
        one = Node.constant("one", np.full((2, 3), value, np.float32))
        out = Node("out", "AddV2", ("x", "one")).with_attrs(T=DType("float32"))
        (tmp_path / name).write_bytes(b"".join(Graph([x, one, out]).serialized()))

    def run(arguments: str, end: str) -> tuple[int, str]:
        script = f"{SCRIPT} {arguments} {end}; exit ${{PIPESTATUS[0]}}"
        done = subprocess.run(["bash", "-c", script], cwd=tmp_path, capture_output=True,
                              text=True, check=False)  # fmt: skip
        assert "Traceback" not in done.stderr
        assert "bug" not in done.stderr
        assert "Exception ignored" not in done.stderr
        return done.returncode, done.stderr

    return run


@pytest.mark.slow
def test_a_reader_that_ends_changes_no_exit_status(shell):
    expected = shell("diff f.pb q.pb", "> /dev/null")
    assert expected[0] == 5
    assert shell("diff f.pb q.pb", NO_READER) == expected
    assert shell("diff f.pb q.pb --json", NO_READER) == expected
    assert shell("inspect f.pb", NO_READER) == (0, "")
    assert shell("inspect f.pb -o -", NO_READER) == (0, "")
    assert shell("--help", NO_READER) == (0, "")
    status, said = shell("inspect nofile --json", NO_READER)
    assert (status, said.count("\n")) == (4, 1)


@pytest.mark.sampled
@once_each(["end"], ["<&- 2>&-", "2> /dev/full", "2>&-", "<&-", "2> >(true)"], quick=1)
def test_other_streams_change_no_result(end, shell, tmp_path):
    assert shell("diff f.pb q.pb --json > out.json", end)[0] == 5
    assert json.loads((tmp_path / "out.json").read_text())["command"] == "diff"
    assert shell("transform --in_graph f.pb --out_graph t.pb --transforms sort_by_execution_order",
                 end)[0] == 0  # fmt: skip
    assert (tmp_path / "t.pb").exists()
    assert shell("inspect nofile", end)[0] == 4


@pytest.mark.sampled
@once_each(
    ["end", "line"],
    [CLOSED, FULL],
    ["inspect f.pb", "inspect f.pb --json", "inspect f.pb -o -", "--help", "--version",
     "inspect --help", "completion bash"],
)  # fmt: skip
def test_what_cannot_be_written_is_an_error_of_a_file(shell, line, end):
    status, said = shell(line, end)
    assert status == 4
    assert said.count("\n") == 1
    assert shows(said, "file-action-failed", source="standard output", action="written")


@once_each(["end"], [CLOSED, FULL], quick=1)
def test_the_error_of_the_command_comes_first(shell, end):
    status, said = shell("diff f.pb q.pb", end)
    assert status == 5
    assert shows(said, "file-action-failed", source="standard output", action="written")
    status, said = shell("nosuch --json", end)
    first, second = said.splitlines()
    assert status == 2
    assert shows(first, "missing", name="nosuch")
    assert shows(second, "file-action-failed", source="standard output", action="written")
    assert shell("inspect nofile", end)[1].count("\n") == 1  # it prints nothing


@pytest.mark.slow
def test_a_failed_verification_stays_one(shell):
    status, said = shell("verify f.pb q.pb --tolerance 0", NO_READER)
    assert status == 5
    assert shows(said, "outputs-differ")


def test_a_broken_pipe_of_something_else_is_a_bug(deploykit, small, monkeypatch):
    def fail(*_, **__):
        raise BrokenPipeError(32, "Broken pipe")

    monkeypatch.setattr("deploykit.api.inspection.inspect", fail)
    found = deploykit("inspect", small, "--json")
    assert (found.status, json.loads(found.stdout)["error"]["code"]) == (1, "child-bug")


def test_sys_stdout_is_put_back():
    before = sys.stdout
    main.run(["--version"])
    assert sys.stdout is before


def test_a_file_never_takes_the_descriptor_of_a_closed_stream():
    code = (
        "import os; from deploykit.cli.standard_output import open_missing; open_missing();"
        "raise SystemExit(os.open(os.devnull, os.O_RDONLY))"
    )
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    script = f'"{sys.executable}" -c "{code}" >&- 2>&-'
    assert subprocess.run(["bash", "-c", script], env=environment, check=False).returncode > 2


@pytest.mark.parametrize("encoding", ["ascii", "cp1251", "koi8-r", "utf-8"])
def test_characters_that_an_encoding_lacks_are_replaced(encoding):
    raw = io.BytesIO()
    stream = StandardOutput(io.TextIOWrapper(raw, encoding=encoding))
    stream.write("mod\u00e8le \u2026 x\n")
    stream.flush()
    found = raw.getvalue().decode(encoding)
    assert found == ("mod\u00e8le \u2026 x\n" if encoding == "utf-8" else found)
    assert found in ("mod\u00e8le \u2026 x\n", "mod\\xe8le ~ x\n", "mod\\xe8le \u2026 x\n")
