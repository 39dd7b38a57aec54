"""The text of server status, predictions and load tests."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from deploykit.rendering.tables import OwnLines, Table, table
from deploykit.rendering.templates import filled_lines, rendered_rows

_NO_VERSION = {"version": "none", "state": "", "code": "OK"}


def health_lines(results: Mapping[str, Any]) -> Iterator[str]:
    """Yield the document of a server's health as text."""
    if "live" in results:
        live = "live" if results["live"] else "not live"
        ready = "ready" if results["health"] == "SERVING" else "not ready"
        yield f"{results['address']}: {results['server'] or 'the server'} is {live} and {ready}"
        yield "name a model to see its versions"
        return
    health = results["health"] or "no such service"
    yield f"{results['address']}: the server responds, health: {health}"
    yield (
        "name a model to see its versions; a deploykit server lists its models over REST: "
        "deploykit status http://HOST:REST_PORT"
    )


def model_lines(results: Mapping[str, Any]) -> Iterator[str | Table]:
    """Yield the document of all models as a table of versions, and their errors."""
    if not results["models"]:
        yield f"{results['address']}: the server has no models"
        return
    rows = [
        {"model": model["model"], **version}
        for model in results["models"]
        for version in model["versions"] or [_NO_VERSION]
    ]
    yield table(rows, {"model": "{model}", "version": "{version}", "state": "{state}"})
    yield from rendered_rows(_failed(rows), "{model}, version {version}: {code}: {message}")


def version_tables(results: Mapping[str, Any]) -> Iterator[str | Table]:
    """Yield the document of a model's versions as tables of versions and signatures."""
    versions, signatures = results["versions"], results["signatures"] or {}
    name = results["model"]
    yield table(
        versions, {name: lambda row: str(row["version"]) or "(no name)", "state": "{state}"}
    )
    yield from rendered_rows(_failed(versions), "version {version}: {code}: {message}")
    if not signatures:
        return
    yield table(
        signatures.items(),
        {
            "signature": "{0}",
            "inputs": lambda row: _tensors(row[1]["inputs"]),
            "outputs": lambda row: _tensors(row[1]["outputs"]),
        },
    )
    yield from rendered_rows(
        signatures.items(), "signature '{0}' is not available: it {1.unavailable}"
    )
    for name, signature in signatures.items():
        for alias, tensor in signature["inputs"].items():
            yield from filled_lines((name, alias, tensor.get("photos")), "{0}: {1} takes {2}")


def _failed(versions: Any) -> Iterator[Mapping[str, Any]]:
    return (version for version in versions if version["code"] != "OK")


def _tensors(tensors: Mapping[str, Mapping[str, Any]]) -> str:
    return ", ".join(f"{k} {described(v['dtype'], v['shape'])}" for k, v in tensors.items())


def start_lines(results: Mapping[str, Any]) -> Iterator[str]:
    """Yield the document of a running server as text."""
    kind = "REST (HTTPS)" if (results["rest_url"] or "").startswith("https:") else "REST"
    rest = f", {kind} on port {results['rest_api_port']}" if results["rest_api_port"] else ""
    yield f"listening on {results['host']}:{results['port']}{rest}"
    for name, versions in results["models"].items():
        yield f"serving {name}: {', '.join(map(str, versions)) or 'no version yet'}"


def load_name(callers: int, rate: float) -> str:
    """Return a description of a load: `500 requests/s`, or `2 clients`."""
    return f"{rate:.4g} requests/s" if rate else f"{callers} client{'s' if callers > 1 else ''}"


def failures(statuses: Mapping[str, int]) -> str:
    """Return the number of requests by status, except OK."""
    return ", ".join(f"{count} {name}" for name, count in sorted(statuses.items()) if name != "OK")


def load_lines(results: Mapping[str, Any]) -> Iterator[str | Table]:
    """Yield the document of a load test as a table, and its limits."""
    loads, shown = results["loads"], ("p50", "p90", "p99", "p99.9", "max")
    yield table(
        loads,
        {
            "load": _load_name,
            "req/s": "{throughput:.1f}",
            **{f"{name} ms": f"{{latency_ms.{name}:.2f}}" for name in shown},
            "failed": "{failed}",
        },
    )
    for load in loads:
        if load["failed"]:
            yield f"failed at {_load_name(load)}: {failures(load['statuses'])}"
    if limited := ", ".join(_load_name(load) for load in loads if load["generator_limited"]):
        yield (
            f"the load generator was the limit at {limited}, not the server: give it more "
            "processes (--processes) or another machine"
        )
    yield from filled_lines(
        results,
        "highest rate with 99 % of requests within {latency_limit_ms:g} ms: {highest_rate:.4g} "
        "requests/s",
    )


def _load_name(load: Mapping[str, Any]) -> str:
    return load_name(load["callers"], load["rate"])


_SHOWN_VALUES = 20


def prediction_lines(result: Any) -> Iterator[str | Table]:
    """Yield each output with its dtype, shape and first values, or the best classes of each sample.

    `sources` of a prediction, the origins of its samples, may be empty.
    """
    if result.classes is None:
        import numpy as np

        from deploykit.transforms.ir.tensors import type_of

        for alias, array in sorted(result.outputs.items()):
            values = np.array2string(array, threshold=_SHOWN_VALUES, precision=6)
            yield f"{alias}: {type_of(array)}{list(array.shape)}"
            yield from values.split("\n")
    for index, predicted in enumerate(result.classes or ()):
        if result.sources:
            yield f"{result.sources[index]}:"
        yield _classes(predicted)


def label_lines(result: Any) -> list[str | Table]:
    """Return the best classes of an image as a table."""
    return [_classes(result.predictions)]


def code_lines(result: Any) -> list[str]:
    """Return the code of an input pipeline."""
    return [OwnLines(result.text.removesuffix("\n"))]


def _classes(predicted: Sequence[Mapping[str, Any]]) -> Table:
    return table(predicted, {"score": "{score:.6f}", "class": "{class}", "label": "{label}"})


def described(dtype: str, shape: Sequence[int] | None) -> str:
    """Return dtype and shape: `float32[?, 224, 224, 3]`; a size of -1 is shown as `?`."""
    if shape is None:
        return dtype
    return f"{dtype}[{', '.join('?' if size < 0 else str(size) for size in shape)}]"
