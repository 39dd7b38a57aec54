"""The page for Prometheus: TensorFlow Serving's names, read by Prometheus' own client."""

import threading
import time

import pytest
from prometheus_client.parser import text_string_to_metric_families

from deploykit.serving.rest.metrics import ENTRYPOINT, MAX_SERIES, UNKNOWN, Metrics, exponential


def read(metrics: Metrics) -> dict[tuple[str, frozenset], float]:
    """Return the samples of the page by name and labels; the parser renames counters `_total`."""
    return {
        (sample.name.removesuffix("_total"), frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(metrics.page().decode())
        for sample in family.samples
    }


def key(name: str, **labels: str) -> tuple[str, frozenset]:
    return f":tensorflow:serving:{name}", frozenset(labels.items())


def test_calls_are_counted():
    metrics = Metrics()
    for _ in range(3):
        metrics.observe("m", "Predict", "OK", 0.002, 0.001)
    metrics.observe("m", "Predict", "NOT_FOUND", 0.5, 0.0)
    page = read(metrics)
    assert page[key("request_count", model_name="m", status="OK")] == 3
    assert page[key("request_count", model_name="m", status="NOT_FOUND")] == 1
    labels = {"model_name": "m", "API": "Predict"}
    assert page[key("request_latency_count", entrypoint="GRPC", **labels)] == 3
    assert page[key("request_latency_sum", entrypoint="GRPC", **labels)] == 6000
    assert page[key("runtime_latency_count", runtime="TF1", **labels)] == 3
    assert page[key("runtime_latency_sum", runtime="TF1", **labels)] == 3000


def test_a_bucket_counts_all_below_its_limit():
    metrics = Metrics()
    for microseconds in (5, 10, 10.1, 17, 1e12):
        metrics.observe("m", "Predict", "OK", microseconds / 1e6, 0)
    page = read(metrics)

    def below(limit: str) -> float:
        labels = {"model_name": "m", "API": "Predict", "entrypoint": "GRPC", "le": limit}
        return page[key("request_latency_bucket", **labels)]

    assert [below("10"), below("18"), below("+Inf")] == [2, 4, 5]


def test_types_are_told_under_the_names_of_the_original_and_our_own_under_ours():
    lines = Metrics().page().decode().splitlines()
    assert lines == [
        "# TYPE :tensorflow:serving:request_latency histogram",
        "# TYPE :tensorflow:serving:batching_session:queuing_latency histogram",
        "# TYPE :tensorflow:serving:request_count counter",
        "# TYPE :tensorflow:serving:runtime_latency histogram",
        "# TYPE :tensorflow:serving:model_warmup_latency histogram",
        "# TYPE :deploykit:serving:engine gauge",
        "# TYPE :deploykit:serving:access_log_dropped_lines counter",
        ":deploykit:serving:access_log_dropped_lines 0",
    ]


def test_calls_by_rest_bear_its_names():
    metrics = Metrics()

    def call():
        ENTRYPOINT.set("REST")
        metrics.observe("m", "Predict", "OK", 0.001, 0.0)

    thread = threading.Thread(target=call)
    thread.start()
    thread.join()
    page = read(metrics)
    labels = {"model_name": "m", "API": "predict", "entrypoint": "REST"}
    assert page[key("request_latency_count", **labels)] == 1


def test_warm_up_and_queue():
    metrics = Metrics()
    metrics.warm_up.add(1.5, "/m/1", "OK")
    metrics.queuing.add(0.0001, "serial")
    page = read(metrics)
    assert page[key("model_warmup_latency_sum", model_path="/m/1", status="OK")] == 1_500_000
    labels = {"thread_pool_name": "serial"}
    assert page[key("batching_session:queuing_latency_bucket", le="100", **labels)] == 1


def test_lines_that_the_access_log_lost():
    metrics = Metrics()
    metrics.unlogged.add(count=3)
    metrics.unlogged.add(count=4)
    assert read(metrics)[":deploykit:serving:access_log_dropped_lines", frozenset()] == 7


def test_buckets_of_the_original():
    limits = exponential(10, 1.8, 33)
    assert len(limits) == 33
    assert limits[:3] == pytest.approx((10, 18, 32.4))
    assert 20 * 60e6 < limits[-1] < 30 * 60e6


@pytest.mark.parametrize("name", ['a"b', "a\\b", "a\nb", 'a\\"', "é", "a,b={}"])
def test_any_name_of_a_model_is_read_back(name):
    metrics = Metrics()
    metrics.observe(name, "Predict", "OK", 0.001, 0.0)
    page = read(metrics)
    assert page[key("request_count", model_name=name, status="OK")] == 1
    assert len({labels for _, labels in page if ("status", "OK") in labels}) == 1


@pytest.mark.sampled
def test_made_up_names_do_not_fill_the_memory():
    metrics = Metrics()
    for number in range(MAX_SERIES + 10):
        metrics.observe(f"m{number}", "Predict", "NOT_FOUND", 0.001, 0.0)
    metrics.observe("m0", "Predict", "NOT_FOUND", 0.001, 0.0)
    page = read(metrics)
    assert page[key("request_count", model_name="", status="")] == 10
    assert page[key("request_count", model_name="m0", status="NOT_FOUND")] == 2


def test_models_that_are_not_served_count_under_one_label_whatever_they_are_called():
    metrics = Metrics({"m"}.__contains__)
    for name in ("m", "M", "", "x" * 1000, *(f"m{number}" for number in range(100))):
        metrics.observe(name, "Predict", "NOT_FOUND", 0.001, 0.0)
        metrics.observe(name, "Predict", "OK", 0.001, 0.0)
    found = {dict(labels).get("model_name", "m") for _, labels in read(metrics)}
    assert found == {"m", UNKNOWN}
    page = read(metrics)
    assert page[key("request_count", model_name=UNKNOWN, status="NOT_FOUND")] == 103
    assert page[key("request_count", model_name="m", status="NOT_FOUND")] == 1


def test_no_call_is_lost_between_threads():
    metrics = Metrics()

    def call():
        for _ in range(2000):
            metrics.observe("m", "Predict", "OK", 0.001, 0.0)

    threads = [threading.Thread(target=call) for _ in range(8)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        metrics.page()
        time.sleep(0.001)
    page = read(metrics)
    assert page[key("request_count", model_name="m", status="OK")] == 16_000
    labels = {"model_name": "m", "API": "Predict", "entrypoint": "GRPC"}
    assert page[key("request_latency_bucket", le="+Inf", **labels)] == 16_000


def test_what_computes_a_version_is_told_while_it_is_there():
    metrics = Metrics()
    metrics.loaded("m", 1, ["openvino 2026.4.1", "tensorflow 2.21.0"])
    metrics.loaded("m", 2, ["tensorflow 2.21.0"])
    metrics.loaded("m", 1, ())
    lines = [line for line in metrics.page().decode().splitlines() if "serving:engine" in line]
    labels = '{model_name="m",model_version="2",engine="tensorflow 2.21.0"}'
    assert lines == [
        "# TYPE :deploykit:serving:engine gauge", f":deploykit:serving:engine{labels} 1"
    ]  # fmt: skip
