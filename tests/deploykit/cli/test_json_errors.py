"""With --json, a command that fails prints its error as a document; the sentence is on stderr."""

import json

import pytest

from deploykit.transforms.common.errors import GraphError
from tests.support import Containing, assert_error, build, tf


def failed(outcome):
    """Return the error of the only document on standard output."""
    document = json.loads(outcome.stdout)
    assert list(document) == ["error"]
    assert list(document["error"]) == ["code", "class", "message", "exit_status", "fields"]
    assert document["error"]["exit_status"] == outcome.status
    assert document["error"]["message"] in outcome.stderr
    assert outcome.stderr.startswith("deploykit: ")
    return document["error"]


def test_an_error_of_ours(deploykit, tmp_path):
    outcome = deploykit("inspect", tmp_path / "no.pb", "--json")
    error = failed(outcome)
    assert (error["code"], error["class"], outcome.status) == ("file-error", "FileError", 4)
    assert error["fields"] == {
        "source": str(tmp_path / "no.pb"),
        "reason": Containing("file or directory"),
    }
    assert_error(outcome.error, "file-error", **error["fields"])


def test_without_json_there_is_no_document(deploykit, tmp_path):
    outcome = deploykit("inspect", tmp_path / "no.pb")
    assert (outcome.status, outcome.stdout) == (4, "")


def test_a_file_named_like_the_option_is_no_option(deploykit, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    outcome = deploykit("inspect", "--", "--json")
    assert (outcome.status, outcome.stdout) == (4, "")
    outcome = deploykit("inspect", "-o", "--json", "no.pb")
    assert (outcome.status, outcome.stdout) == (4, "")
    assert deploykit("inspect", "--nosuch", "--", "--json").stdout == ""


def test_an_output_that_is_standard_output_gets_the_document(deploykit, tmp_path):
    assert failed(deploykit("inspect", tmp_path / "no.pb", "-o", "-"))["code"] == "file-error"
    assert failed(deploykit("inspect", "", "-o", "-"))["code"] == "option-value"


def test_a_report_on_standard_output_holds_the_error(deploykit, small, small_bytes):
    other = small.parent / "other.pb"
    other.write_bytes(small_bytes.replace(b"logits", b"logitz"))
    outcome = deploykit("diff", small, other, "-o", "-")
    assert (outcome.status, json.loads(outcome.stdout)["command"]) == (5, "diff")


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["verify", "--json"], "usage"),
        (["no-such-command", "--json"], "missing"),
        (["inspect", "--x", "--json"], "missing"),
    ],
)
def test_wrong_usage(deploykit, arguments, code):
    assert failed(deploykit(*arguments))["code"] == code


@pytest.mark.parametrize(
    ("raised", "code", "status"),
    [
        (KeyError("x"), "child-bug", 1),
        (MemoryError(), "out-of-memory-here", 6),
        (OSError(28, "No space left on device", "f"), "file-error", 4),
        (GraphError("a text of its own"), "graph-error", 2),
    ],
    ids=lambda each: type(each).__name__,
)
def test_other_errors(deploykit, small, monkeypatch, raised, code, status):
    def fail(*_, **__):
        raise raised

    monkeypatch.setattr("deploykit.api.inspection.inspect", fail)
    outcome = deploykit("inspect", small, "--json")
    found = json.loads(outcome.stdout)["error"]
    assert (found["code"], outcome.status) == (code, status)


def test_a_document_that_is_printed_holds_the_error(deploykit, tmp_path, in_process):
    for name, factor in (("two.pb", 2.0), ("three.pb", 3.0)):

        def body(factor=factor):
            x = tf.compat.v1.placeholder(tf.float32, [None, 4], name="x")
            tf.multiply(x, factor, name="y")

        graph = build(body, ["x"], ["y"])
        (tmp_path / name).write_bytes(b"".join(graph.serialized()))
    outcome = deploykit("verify", tmp_path / "two.pb", tmp_path / "three.pb", "--json")
    document = json.loads(outcome.stdout)
    assert (outcome.status, document["passed"]) == (5, False)
    assert document["error"]["code"] == "outputs-differ"
    assert document["error"]["fields"]["source"] == str(tmp_path / "three.pb")
