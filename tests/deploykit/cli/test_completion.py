"""Completion as a shell asks for it: the real script, and the real command behind it."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(sys.executable).with_name("deploykit")


@pytest.fixture
def complete(tmp_path):
    """Return what a shell is given for the last word of a command line."""

    def run(line: str) -> list[str]:
        environment = {
            **os.environ,
            "_DEPLOYKIT_COMPLETE": "bash_complete",
            "COMP_WORDS": line,
            "COMP_CWORD": str(len(line.split(" ")) - 1),
        }
        done = subprocess.run([SCRIPT], env=environment, cwd=tmp_path, capture_output=True,
                              text=True, check=True)  # fmt: skip
        assert done.stderr == ""
        return done.stdout.split()

    return run


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("deploykit qua", ["plain,quantize"]),
        ("deploykit records ver", ["plain,verify"]),
        ("deploykit records photos", ["file,photos"]),
        ("deploykit completion ", ["plain,bash", "plain,zsh", "plain,fish"]),
        ("deploykit quantize --input", ["plain,--input-range", "plain,--inputs"]),
        ("deploykit serve --nonsense --ssl", ["plain,--ssl_config_file"]),
        ("deploykit quantize --isa a", ["plain,auto", "plain,avx2"]),
        ("deploykit quantize model.pb --isa=v", ["plain,vnni"]),
        ("deploykit export m b --manifests docker,k", ["plain,docker,kubernetes",
                                                       "plain,docker,kserve"]),
        ("deploykit benchmark m.pb --onednn o", ["plain,on", "plain,off"]),
        ("deploykit placement --device g", ["plain,gpu"]),
        ("deploykit quantize model.pb --calibration ph", ["file,ph"]),
        ("deploykit quantize model.pb -o ", ["file,"]),
    ],
)  # fmt: skip
def test_what_is_completed(complete, line, found):
    assert complete(line) == found


def test_a_broken_project_file_and_an_unknown_command_are_no_obstacle(complete, tmp_path):
    (tmp_path / "deploykit.toml").write_text("[nonsense")
    assert complete("deploykit quantize --is") == ["plain,--isa"]
    assert complete("deploykit quantise --is") == []


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_scripts_ask_deploykit(deploykit, shell):
    found = deploykit("completion", shell)
    assert found.status == 0, found.stderr
    assert f"_DEPLOYKIT_COMPLETE={shell}_complete" in found.stdout
    assert deploykit("completion", "tcsh").status == 2


@pytest.mark.sampled
@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
def test_the_script_completes_in_bash():
    code = (
        f'eval "$("{SCRIPT}" completion bash)"; COMP_WORDS=("{SCRIPT}" quantize --min-s);'
        f' COMP_CWORD=2; _deploykit_completion "{SCRIPT}"; printf "%s\\n" "${{COMPREPLY[@]}}"'
    )
    done = subprocess.run(["bash", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["--min-sqnr"]
    assert (
        "complete -o nosort -F _deploykit_completion deploykit"
        in subprocess.run(
            [SCRIPT, "completion", "bash"], capture_output=True, text=True, check=True
        ).stdout
    )


def test_completion_imports_neither_tensorflow_nor_numpy_nor_rich():
    code = (
        "import sys, atexit, deploykit.cli.main as cli; sys.argv = ['deploykit'];"
        "slow = {'tensorflow', 'numpy', 'rich', 'keras'};"
        "atexit.register(lambda: print(slow & {*sys.modules}, file=sys.stderr)); cli.main()"
    )
    environment = {**os.environ, "_DEPLOYKIT_COMPLETE": "bash_complete",
                   "COMP_WORDS": "deploykit quantize --isa ", "COMP_CWORD": "3"}  # fmt: skip
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True,
                          text=True, check=True)  # fmt: skip
    assert (done.stdout.split()[0], done.stderr) == ("plain,auto", "set()\n")
