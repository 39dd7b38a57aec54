"""The lines of the log: what they say of a call, and valid JSON whatever a caller sends."""

import json

import pytest

from deploykit.serving.server.access_log import AccessLog


@pytest.fixture
def log(tmp_path):
    return AccessLog(str(tmp_path / "log"))


def lines(log, tmp_path):
    log.close()
    return [json.loads(line) for line in (tmp_path / "log").read_text().splitlines()]


def test_what_a_line_says(log, tmp_path):
    log.write("grpc", "Predict", "ipv4:127.0.0.1:1", "OK", 0.0123456, "m", 12)
    log.write("rest", "GET", "ipv4:127.0.0.1:1", "NOT_FOUND", 0.5)
    first, second = lines(log, tmp_path)
    assert first.pop("time").endswith("+00:00")
    assert first == {
        "protocol": "grpc", "method": "Predict", "model": "m", "peer": "ipv4:127.0.0.1:1",
        "code": "OK", "milliseconds": 12.346, "bytes_in": 12,
    }  # fmt: skip
    assert (second["model"], "bytes_in" in second) == ("", False)


@pytest.mark.sampled
@pytest.mark.parametrize(
    "text", ['"', "\\", "\n", "\0\x1b[2J", "\ud800", "é\U0001f600", "\u2028", "a" * (1 << 20)]
)
def test_any_text_is_one_line_of_json_and_not_a_long_one(log, tmp_path, text):
    log.write("grpc", text, text, "OK", 0.0, text)
    assert (tmp_path / "log").read_bytes().count(b"\n") <= 1
    [found] = lines(log, tmp_path)
    assert found["model"] == found["peer"] == found["method"]
    assert found["model"] in (text[:256], "?")
    assert (tmp_path / "log").stat().st_size < 5000
