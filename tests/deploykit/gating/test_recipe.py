"""The workflow and the settings in docs/gate.md are ones that the command line accepts."""

import json
import os
import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest
import yaml

from deploykit.cli.build import build
from deploykit.cli.project_file import NAME
from deploykit.transforms.common.documents import document
from tests.deploykit.gating.test_outputs import RESULT

PAGE = (Path(__file__).parents[3] / "docs" / "gate.md").read_text()


def blocks(language):
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


def commands():
    (workflow,) = blocks("yaml")
    steps = yaml.safe_load(workflow)["jobs"]["gate"]["steps"]
    lines = "\n".join(step.get("run", "") for step in steps).replace("\\\n", " ").splitlines()
    lines += "\n".join(blocks("sh")).splitlines()
    return [line.split() for line in lines if line.startswith("deploykit gate ")]


@pytest.mark.parametrize("words", commands())
def test_every_command_of_the_page_parses(words):
    context = build("gate").make_context("gate", words[2:])
    assert context.params["max_latency_increase"] == 0.05


def test_the_workflow_and_the_page_have_a_command():
    assert len(commands()) == 2


@pytest.mark.skipif(shutil.which("jq") is None, reason="the runners of GitHub have jq")
def test_the_summary_is_a_table_of_the_checks(tmp_path):
    (workflow,) = blocks("yaml")
    steps = yaml.safe_load(workflow)["jobs"]["gate"]["steps"]
    (script,) = [step["run"] for step in steps if step.get("name") == "Summary"]
    (tmp_path / "gate.json").write_text(json.dumps(document(RESULT)))
    subprocess.run(
        ["bash", "-e", "-c", script], cwd=tmp_path, check=True,
        env={**os.environ, "GITHUB_STEP_SUMMARY": str(tmp_path / "summary.md")},
    )  # fmt: skip
    lines = (tmp_path / "summary.md").read_text().splitlines()
    assert lines[0].endswith(RESULT.verdict)
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines[4:]]
    assert [row[:2] for row in cells] == [[each.name, each.verdict] for each in RESULT.checks]
    assert cells[4][2:] == ["0.0081", "0.05"]


def test_the_settings_are_options(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (text,) = blocks("toml")
    assert len(tomllib.loads(text)["gate"]) == 4
    Path(NAME).write_text(text)
    context = build("gate").make_context("gate", ["a.pb", "b.pb", "--data", "d.npz"])
    got = {
        name: context.params[name] for name in ("max_accuracy_drop", "max_p99_increase", "budget")
    }
    assert got == {"max_accuracy_drop": 0.005, "max_p99_increase": 0.2, "budget": 180}
