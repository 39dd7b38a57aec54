"""Every number in a file of deploykit is within bounds: else the file is refused in a sentence."""

import copy
import json

import pytest

from deploykit.benchmarking.results import load_result, load_tuned
from deploykit.benchmarking.run_config import RunConfig
from deploykit.records.index import load_index
from deploykit.shipping.shipped import FOLDER, Outcome, StageResult
from deploykit.shipping.stage_cache import StageCache
from deploykit.transforms.common.errors import Error
from deploykit.transforms.engines.engines import MAX_BATCH, MAX_REQUESTS, MAX_THREADS
from deploykit.transforms.int8.ranges import Ranges, TensorRange, load_ranges
from tests.deploykit.benchmarking.made_up_results import measurement, result

NUMBERS = (0, -1, -0.5, 1e300, 10**9, 10**30, "1" + "0" * 400, float("nan"), float("inf"),
           -float("inf"), True, "five", None, 1.5, [])  # fmt: skip


def tuned(folder):
    settings = {"batch": 8, "threads": [2, 1], "concurrency": 3, "omp_num_threads": 2}
    document = {"format": 1, "kind": "tuned", "settings": settings}

    def read(path):
        found = load_tuned(path)
        assert 1 <= (found.batch or 1) <= MAX_BATCH
        assert 1 <= found.concurrency <= MAX_REQUESTS
        assert max(found.threads or (1,)) <= MAX_THREADS
        assert 1 <= int(dict(found.env).get("OMP_NUM_THREADS", 1)) <= MAX_THREADS
        return str(found), found.environment

    return folder / "tuned.json", document, read


def ranges(folder):
    text = Ranges("ab", 3, {"x": TensorRange(-1.0, 2.0, (0.5,), (-1.0,))}).text()
    return folder / "x.ranges.json", json.loads(text), lambda path: load_ranges(path).text()


def index(folder):
    shard = {"file": "d-00000-of-00001.tfrecord", "records": 3, "bytes": 9, "sha256": "0" * 64}
    document = {
        "format": 1, "name": "d", "records": 3, "bytes": 9, "compression": "", "shards": [shard],
        "features": {"x": {"dtype": "float32", "shape": [4]}},
    }  # fmt: skip
    return folder / "d.index.json", document, lambda path: load_index(folder)


def benchmark(folder):
    return (
        folder / "b.json",
        result(measurement(settings=RunConfig(batch=2))).document(),
        lambda path: load_result(path).document(),
    )


def stage(folder):
    kept = StageCache(folder)
    (folder / FOLDER).mkdir()
    kept.keep("key", StageResult("tune", Outcome({}), 1.5))
    path = folder / FOLDER / "tune.json"
    read = lambda path: (kept.seconds("tune"), kept.lookup("tune", "key"))  # noqa: E731
    return path, json.loads(path.read_text()), read


def numbers_in(document, path=()):
    """Yield where a document holds numbers, of each list in the first two items."""
    items = document.items() if isinstance(document, dict) else enumerate(document[:2])
    for key, value in items:
        if isinstance(value, dict | list):
            yield from numbers_in(value, (*path, key))
        elif isinstance(value, int | float) and not isinstance(value, bool):
            yield (*path, key)


def with_number(document, path, number):
    found = copy.deepcopy(document)
    place = found
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = number
    text = json.dumps(found)
    return text.replace(json.dumps(number), number) if number == NUMBERS[6] else text


@pytest.mark.sampled
@pytest.mark.parametrize("kind", [tuned, ranges, index, benchmark, stage])
def test_a_number_is_read_or_refused(tmp_path, kind):
    path, document, read = kind(tmp_path)
    path.write_text(json.dumps(document))
    read(path)
    refused = 0
    for place in numbers_in(document):
        for number in NUMBERS:
            path.write_text(with_number(document, place, number))
            try:
                read(path)
            except Error:
                refused += 1
    assert refused > 20 or kind is stage  # of which an unreadable one is run again
