"""The commands that ship prints, and writes into its report and README, run as they stand."""

import html
import re
import shlex

import pytest

from tests import pairwise
from tests.deploykit.exporting.test_printed_commands import models  # noqa: F401  a fixture
from tests.serving.served import Served

KINDS = ("two inputs", "text", "dict of outputs", "photos", "scalars")


@pytest.mark.sampled
@pytest.mark.parametrize("kind", pairwise.drawn(__name__, KINDS, 1))
def test_the_commands_of_ship_run_as_they_stand(models, kind, deploykit, tmp_path):  # noqa: F811
    folder = tmp_path / "my ship"
    shipped = deploykit("ship", models[kind], "-o", folder, "--budget", "0.1", "--json")
    assert shipped.status == 0, shipped.stderr
    commands = {row["what"]: row["command"] for row in shipped.document["commands"]}
    page = html.unescape(re.sub(r"<[^>]+>", "", (folder / "report.html").read_text()))
    readme = (folder / "README.md").read_text()
    for command in commands.values():
        assert command in readme
        assert command in page
    serve = shlex.split(commands["serve the model"])
    server = Served(*serve[2:], forked=False)
    try:
        ask = shlex.split(commands["send a request"])
        assert ask[:3] == ["deploykit", "predict", "localhost:8500"]
        found = deploykit("predict", server.address, *ask[3:])
        assert found.status == 0, found.stderr
    finally:
        server.kill()
    for what in ("rebuild the report", "ship again"):
        found = deploykit(*shlex.split(commands[what])[1:])
        assert found.status == 0, (what, found.stderr)
