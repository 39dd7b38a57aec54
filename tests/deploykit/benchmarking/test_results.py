"""A result read back from its file is the same; another file is refused in one sentence."""

import json

import pytest

from deploykit.benchmarking.results import BenchmarkResult, load_result, load_tuned
from deploykit.benchmarking.run_config import RunConfig
from deploykit.transforms.common.errors import GraphError
from tests.deploykit.benchmarking.made_up import measurement, result, times
from tests.support import assert_golden, refusal


def several() -> BenchmarkResult:
    return result(
        measurement(),
        measurement(times(1.5), name="batch 8", settings=RunConfig(8, (2, 1), True, xla=True)),
        measurement([[0.1 + 0.2], [1e-9, 1 / 3]], name="odd", samples=1, settled=False,
                    warm_up_ms=()),
        note="más",
    )  # fmt: skip


def test_a_result_read_back_is_equal(tmp_path):
    path = tmp_path / "result.json"
    for written in (
        several(),
        BenchmarkResult(several().measurements, {}, "2026", interrupted=True),
    ):
        path.write_text(json.dumps(written.document()))
        assert load_result(path) == written
        assert load_result(path).document() == written.document()


def test_the_document_has_what_a_reader_computes_first():
    document = several().document()
    assert (document["format"], document["kind"]) == (1, "benchmark")
    for each, found in zip(several().measurements, document["measurements"], strict=True):
        calls = sorted(each.latencies_ms)
        figures = found["summary"]
        assert figures["calls"] == len(calls)
        assert (figures["min"], figures["max"]) == (calls[0], calls[-1])
        assert figures["min"] <= figures["p50"] <= figures["p90"] <= figures["p99"]
        assert figures["p99"] <= figures["p99_9"] <= figures["max"]
        assert figures["mean"] == pytest.approx(sum(calls) / len(calls))
        assert figures["items_per_second"] == each.items_per_second


def test_items_a_second_count_samples_and_the_time_of_rounds():
    found = measurement([[10.0, 10.0], [10.0, 10.0]], samples=3, rounds_seconds=(0.01, 0.02))
    assert found.items_per_second == pytest.approx(3 * 4 / 0.03)


def changed(**changes) -> dict:
    document = several().document()
    document["measurements"][1] |= changes
    return document


@pytest.mark.parametrize(
    "document",
    [
        {**several().document(), "measurements": None},
        {**several().document(), "measurements": [None]},
        {**several().document(), "machine": 3},
        {k: v for k, v in several().document().items() if k != "started"},
        changed(rounds_ms=[["fast"]], rounds_seconds=[1]),
        changed(rounds_ms=[[1.0], [1.0]], rounds_seconds=[1]),
        changed(rounds_ms=[[-1.0]], rounds_seconds=[1]),
        changed(samples="many"),
        changed(facts=7),
        changed(settings=None),
        changed(settings={"batch": -8}),
    ],
)
def test_what_is_no_result_is_said_in_one_sentence(tmp_path, document):
    path = tmp_path / "wrong.json"
    path.write_text(json.dumps(document))
    with pytest.raises(GraphError) as raised:
        load_result(path)
    assert str(raised.value).startswith(f"{path}: ")
    assert "\n" not in str(raised.value)


TUNED = '{"kind": "tuned", "format": 1'
WRONG = (
    b"", b"\xff\xfe\x00", b"[1]", b'{"kind": "benchmark"}', b'{"kind": "tuned", "format": 2}',
    *(f"{TUNED}{more}".encode() for more in (
        "}", ', "settings": []}', ', "settings": {"threads": 3}}', ', "settings": {"speed": 3}}',
    )),
)  # fmt: skip


@pytest.mark.golden("refusals/tuned")
def test_wrong_tuned_files(tmp_path):
    path, said = tmp_path / "tuned.json", []
    for content in WRONG:
        path.write_bytes(content)
        found = refusal(load_tuned, path).replace(f"{tmp_path}/", "")
        assert '"source": "tuned.json' in found
        said.append(f"{content}\n{found}")
    assert_golden(*said)


def test_a_tuned_file(tmp_path):
    path = tmp_path / "tuned.json"
    path.write_text(json.dumps({"kind": "tuned", "format": 1, "settings": {"threads": [2, 1]}}))
    assert load_tuned(path) == RunConfig(threads=(2, 1))
