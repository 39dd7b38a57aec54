"""What cannot be written is refused before anything is read, whichever command is to write it."""

import contextlib
import re
import subprocess

import click
import pytest

from deploykit.cli.main import cli
from deploykit.transforms.common.errors import GraphError
from deploykit.transforms.runtime import child_process
from tests.support import says, shows

FILES = re.compile(r"\b[Ww]rite|^Plot")
VALUES = {
    "transforms": "remove_device",
    "name": "fold_constants",
    "rate": "1",
    "latency_limit": "1",
}


def leaves(group=cli, path=()):
    """Yield the words and the click command of every command."""
    for name in group.list_commands(click.Context(group)):
        command = group.get_command(click.Context(group), name)
        if isinstance(command, click.Group):
            yield from leaves(command, (*path, name))
        else:
            yield (*path, name), command


def shown(parameter):
    """Return what the help shows for a parameter's value."""
    return parameter.make_metavar(click.Context(cli)).lstrip("[")


LEAVES = dict(leaves())
OUTPUTS = [
    (words, option.name)
    for words, command in LEAVES.items()
    for option in command.params
    if isinstance(option, click.Option) and not option.is_flag
    if "FILE" in shown(option) and FILES.search(option.help)
    if any(parameter.name == "force" for parameter in command.params)
]
DEFAULTS = {
    words: found[1]
    for words, name in OUTPUTS
    for option in LEAVES[words].params
    if option.name == name and (found := re.search(r"NAME(\S+) next to the model\]", option.help))
}


def filled(words, output, path, *more, garbage):
    """Return a command line whose every file is garbage, and that writes to this path."""
    line = list(words)
    for parameter in LEAVES[words].params:
        value = VALUES.get(parameter.name, garbage)
        if isinstance(parameter, click.Argument):
            line.append(value)
        elif parameter.required and parameter.name != output:
            line += [parameter.opts[0], value]
        elif parameter.name == output and path is not None:
            line += [parameter.opts[0], path]
    return [*line, *more]


@pytest.fixture
def garbage(tmp_path):
    path = tmp_path / "model.pb"
    path.write_bytes(b"garbage")
    return path


@pytest.fixture
def refused(deploykit, monkeypatch, started_children):
    """Run a command line, and return why it was refused: without a child process."""

    def call(*arguments, **more):
        raise AssertionError("a child process was started")

    monkeypatch.setattr(subprocess, "Popen", call)

    def run(line):
        found = deploykit(*line)
        assert (found.status, found.printed) == (4, ""), found.stderr
        return found.stderr.removeprefix("deploykit: error: ").removesuffix("\n")

    return run


def test_outputs_are_found():
    """What the tests below walk: at least these, so that no change of help hides them."""
    assert {words for words, _ in OUTPUTS} == {
        words for words, command in LEAVES.items()
        if any(
            {"-o", "--output"} & set(parameter.opts) and shown(parameter) != "DIR"
            for parameter in command.params
        )
    }  # fmt: skip
    assert len(OUTPUTS) >= 23
    assert {("benchmark",), ("load-test",)} == {w for w, n in OUTPUTS if n == "plot_file"}
    assert {words[0] for words in DEFAULTS} == {
        "freeze", "optimize", "quantize", "calibrate", "tune",
    }  # fmt: skip


@pytest.mark.sampled
@pytest.mark.parametrize(("words", "output"), OUTPUTS)
def test_a_file_that_cannot_be_written(refused, tmp_path, garbage, words, output):
    there = tmp_path / "there.svg"
    there.write_bytes(b"precious")
    missing = tmp_path / "no" / "out.svg"
    for path, why in (
        (there, says("exists", source=there)),
        (missing, says("folder-missing", source=missing, folder=missing.parent, more="")),
        (tmp_path, says("folder-given", source=tmp_path)),
    ):
        for given in (garbage, tmp_path / "gone.pb"):
            assert re.fullmatch(why, refused(filled(words, output, path, garbage=given)))
    if words not in (("doctor",), ("transforms",), ("status",)):  # which read no file
        message = refused(filled(words, output, garbage, "--force", garbage=garbage))
        assert shows(message, "output-is-input", source=garbage)
    assert there.read_bytes() == b"precious"
    assert garbage.read_bytes() == b"garbage"
    assert sorted(tmp_path.iterdir()) == [garbage, there]


@pytest.mark.parametrize(("words", "end"), DEFAULTS.items())
def test_the_default_output_too(refused, tmp_path, garbage, words, end):
    there = tmp_path / f"model{end}"
    there.write_bytes(b"precious")
    assert shows(refused(filled(words, "output", None, garbage=garbage)), "exists", source=there)
    gone = tmp_path / "no" / "model.pb"
    assert refused(filled(words, "output", None, garbage=gone)).startswith(f"{gone}: No such file")


def test_folders(refused, tmp_path, garbage):
    folder = tmp_path / "out"
    for part in ("net/1", "steps"):
        (folder / part).mkdir(parents=True)
    for name in ("steps/mine.txt", "models.config", "data.index.json"):
        (folder / name).write_text("precious")
    changing = ("transform", f"--in_graph={garbage}", f"--out_graph={tmp_path / 'x.pb'}",
                "--transforms=remove_device")  # fmt: skip
    exporting = ("export", garbage, folder, "--name=net")
    for line, message in (
        (
            (*changing, f"--dump={folder / 'steps'}"),
            says("dump-not-empty", source=folder / "steps"),
        ),
        ((*changing, f"--dump={garbage}"), says("dump-is-file", source=garbage)),
        ((*exporting, "--version=1"), says("version-exists", source=folder / "net/1")),
        ((*exporting, "--manifests=config"), says("exists", source=folder / "models.config")),
        (
            ("export", garbage, garbage),
            says("not-a-folder", source=garbage / "model", folder=garbage),
        ),
        (("records", garbage, folder), says("exists", source=folder / "data.index.json")),
        (
            ("records", garbage, garbage / "x"),
            says("not-a-folder", source=garbage / "x", folder=garbage),
        ),
    ):
        assert re.search(message, refused(line))


@pytest.mark.parametrize(
    ("line", "ahead"),
    [
        (("freeze", "{}/model.ckpt"), True),
        (("verify", "{0}/model.ckpt.meta", "{0}/model.ckpt.meta"), True),
        (("verify", "{0}/model.ckpt.meta", "{0}/missing"), False),
        (("freeze", "{}/missing"), False),
        (("inspect", "{}/model.ckpt"), False),
    ],
)
def test_a_child_is_started_for_a_command_that_runs_a_graph(
    deploykit, monkeypatch, tmp_path, line, ahead
):
    started = []

    @contextlib.contextmanager
    def recorded():
        started.append(True)
        raise GraphError("enough")
        yield

    monkeypatch.setattr(child_process, "started_ahead", recorded)
    for name in ("model.ckpt.index", "model.ckpt.meta"):
        (tmp_path / name).write_bytes(b"garbage")
    output = ("-o", tmp_path / "out.pb") if line[0] == "freeze" else ()
    deploykit(*(word.format(tmp_path) for word in line), *output)
    assert bool(started) is ahead
