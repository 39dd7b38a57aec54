"""What a command prints where its output goes: names whole in pipes, folded on a terminal."""

import os
import pty
import re
import subprocess
import sys
import termios

import pytest

from deploykit.cli.output import Report, show

NAME = "encoder_" + "x" * 184 + "_end.pbx"


@pytest.fixture
def long(small):
    return small.rename(small.parent / NAME)


def printed(deploykit, path, *more):
    found = deploykit("optimize", path, "--force", *more)
    assert found.status == 0, found.stderr
    return found.stdout


@pytest.mark.sampled
def test_a_pipe_gets_whole_names(deploykit, long, monkeypatch):
    monkeypatch.delenv("COLUMNS", raising=False)
    (line,) = (line for line in printed(deploykit, long).splitlines() if f"{long} " in line)
    assert " kB " in line


@pytest.mark.sampled
@pytest.mark.parametrize("width", [20, 40, 80, 200])
def test_columns_say_how_wide_tables_are(deploykit, long, monkeypatch, width):
    monkeypatch.setenv("COLUMNS", str(width))
    text = printed(deploykit, long)
    rows = [line for line in text.splitlines() if re.search(r" kB( |$)", line)]
    assert len(rows) == 2
    assert NAME in "".join(line.split(" ")[0] for line in text.splitlines())
    steps = [line for line in text.splitlines() if re.search(r" \d\.\d\d( |$)", line)]
    assert len(steps) == 10  # each in a line of its own
    assert max(map(len, rows)) <= max(width, 40)
    assert f'"input_file": "{long}"' in printed(deploykit, long, "--json")


@pytest.mark.sampled
def test_a_terminal_has_its_own_width():
    code = (
        "from deploykit.cli.output import Report, show;"
        f"show(Report('freeze', '{NAME}', bytes_in=1234, nodes_in=56), False)"
    )
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (24, 50))
    environment = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
    subprocess.run(
        [sys.executable, "-c", code], stdout=theirs, stderr=theirs, env=environment, check=True
    )
    os.close(theirs)
    lines = os.read(ours, 10000).decode().splitlines()
    os.close(ours)
    (row,) = (line for line in lines if "1.23 kB" in line)
    assert len(row) == 50
    assert NAME in "".join(line.split(" ")[0] for line in lines)


@pytest.mark.sampled
def test_an_encoding_without_our_line():
    code = (
        "import sys; sys.stdout.reconfigure(encoding='ascii');"
        "from deploykit.cli.output import Report, show;"
        "from deploykit.cli.standard_output import StandardOutput;"
        "sys.stdout = StandardOutput(sys.stdout);"
        "show(Report('freeze', '\\u00e9' + 'x' * 80), False)"
    )
    found = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, check=True,
        env=os.environ | {"COLUMNS": "40"},
    )  # fmt: skip
    lines = found.stdout.decode("ascii").splitlines()
    assert lines[1] == "-" * 40
    assert lines[2].startswith("\\xe9xxx")


def test_what_is_printed_is_text_alone(capsys):
    show(Report("verify", "[bold]a[/bold].pb"), False, text=["[red]"])
    assert capsys.readouterr().out == "[red]\n"
