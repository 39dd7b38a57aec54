"""A run that is interrupted goes on where it was."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from tests import pairwise
from tests.deploykit.benchmarking.nets import dense, written

ROOT = Path(__file__).parents[3]


def command(folder, *words):
    return subprocess.Popen(
        [sys.executable, "-m", "deploykit", "ship", "net.pb", "--budget=0.3",
         "--engine=tensorflow", *words],
        cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip


NUMBERS = pairwise.drawn(__name__, [signal.SIGINT, signal.SIGTERM, signal.SIGKILL], 1)


@pytest.mark.parametrize("number", NUMBERS)
def test_it_goes_on(tmp_path, number):
    written(dense(), tmp_path / "net.pb")
    np.savez(tmp_path / "eval.npz", x=np.ones((9, 8), np.float32), labels=np.arange(9) % 3)
    first = command(tmp_path, "--evaluation=eval.npz")
    done = tmp_path / "net.ship" / ".stages" / "verify.json"
    while first.poll() is None and not done.exists():
        time.sleep(0.05)
    first.send_signal(number)
    said = first.communicate()[1]
    assert first.returncode == (128 + number if number != signal.SIGKILL else -number), said
    plan = command(tmp_path, "--evaluation=eval.npz", "--dry-run", "--json")
    acts = {e["stage"]: e["act"] for e in json.loads(plan.communicate()[0])["plan"]}
    assert [acts[name] for name in ("check", "optimize", "verify")] == ["kept"] * 3
    assert acts["benchmark"] == "run"
    second = command(tmp_path, "--evaluation=eval.npz", "--json")
    out, said = second.communicate()
    assert second.returncode == 0, said
    stages = {each["stage"]: each for each in json.loads(out)["stages"]}
    assert stages["verify"]["kept"]
    assert stages["serve"]["document"]["agrees"] is True
