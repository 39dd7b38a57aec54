"""Server metrics in the Prometheus text format, with TensorFlow Serving's metric names."""

import threading
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping
from contextvars import ContextVar

ENTRYPOINT: ContextVar[str] = ContextVar("entrypoint", default="GRPC")
"""The protocol of the requests of a thread: `GRPC` or `REST`."""

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
MAX_SERIES = 10_000  # per metric, as models come and go
UNKNOWN = ""
"""The label for all names that are not a served model."""
_PREFIX, _OWN_PREFIX = ":tensorflow:serving:", ":deploykit:serving:"
_ESCAPES = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n"})
_RUNTIME = "TF1"  # TensorFlow Serving's label for a session


def exponential(scale: float, growth: float, count: int) -> tuple[float, ...]:
    """Return the upper bounds of histogram buckets."""
    return tuple(scale * growth**power for power in range(count))


class Counter:
    """A Prometheus counter by label values."""

    kind = "counter"

    def __init__(self, name: str, *labels: str, prefix: str = _PREFIX) -> None:
        """Set the name, without the prefix, and the labels. Without labels it starts at 0."""
        self.name, self.labels = prefix + name, labels
        self._values: dict[tuple[str, ...], int] = {} if labels else {(): 0}
        self._lock = threading.Lock()

    def add(self, *values: str, count: int = 1) -> None:
        """Increase the counter with these label values."""
        with self._lock:
            key = _bounded(values, self._values)
            self._values[key] = self._values.get(key, 0) + count

    def lines(self) -> Iterable[str]:
        """Yield the lines of the text format."""
        with self._lock:
            values = sorted(self._values.items())
        for key, value in values:
            labels = f"{{{_labels(self.labels, key)}}}" if key else ""
            yield f"{self.name}{labels} {value}"


class Gauge:
    """A Prometheus gauge of states: each active set of label values has the value 1."""

    kind = "gauge"

    def __init__(self, name: str, *labels: str) -> None:
        """Set the name, without the prefix, and the labels."""
        self.name, self.labels = _OWN_PREFIX + name, labels
        self._values: frozenset[tuple[str, ...]] = frozenset()
        self._lock = threading.Lock()

    def replace(self, begins: tuple[str, ...], values: Iterable[tuple[str, ...]]) -> None:
        """Replace the label values that start with `begins` by these."""
        with self._lock:
            others = {value for value in self._values if value[: len(begins)] != begins}
            self._values = frozenset(others.union(values))

    def lines(self) -> Iterable[str]:
        """Yield the lines of the text format."""
        for values in sorted(self._values):
            yield f"{self.name}{{{_labels(self.labels, values)}}} 1"


class Histogram:
    """A Prometheus histogram of times in microseconds by label values."""

    kind = "histogram"

    def __init__(self, name: str, limits: tuple[float, ...], *labels: str) -> None:
        """Set the name, without the prefix, the labels, and the upper bounds of the buckets."""
        self.name, self.labels = _PREFIX + name, labels
        self._limits = limits
        self._series: dict[tuple[str, ...], list[float]] = {}  # count per bucket, and the sum
        self._lock = threading.Lock()

    def add(self, seconds: float, *values: str) -> None:
        """Record a time with these label values."""
        time = seconds * 1e6
        with self._lock:
            series = self._series.get(values)
            if series is None:
                key = _bounded(values, self._series)
                series = self._series.setdefault(key, [0] * (len(self._limits) + 2))
            series[bisect_left(self._limits, time)] += 1
            series[-1] += time

    def lines(self) -> Iterable[str]:
        """Yield the lines of the text format. Buckets are cumulative."""
        with self._lock:
            results = sorted((key, list(series)) for key, series in self._series.items())
        limits = [f"{limit:g}" for limit in self._limits] + ["+Inf"]
        for key, (*counts, total) in results:
            labels = _labels(self.labels, key)
            count = 0
            for limit, more in zip(limits, counts, strict=True):
                count += int(more)
                yield f'{self.name}_bucket{{{labels},le="{limit}"}} {count}'
            yield f"{self.name}_sum{{{labels}}} {total:.0f}"
            yield f"{self.name}_count{{{labels}}} {count}"


class Metrics:
    """The metrics of a server."""

    def __init__(self, known: Callable[[str], bool] = lambda name: True) -> None:
        """Start at zero; `known` returns whether a model of a name is served.

        Requests for all other names share one label, because clients can send any name.
        """
        self._known = known
        times = exponential(10, 1.8, 33)  # to 20 minutes
        self.requests = Counter("request_count", "model_name", "status")
        self.latency = Histogram("request_latency", times, "model_name", "API", "entrypoint")
        self.runtime = Histogram("runtime_latency", times, "model_name", "API", "runtime")
        self.warm_up = Histogram("model_warmup_latency", times, "model_path", "status")
        self.queuing = Histogram(
            "batching_session:queuing_latency", exponential(100, 1.2, 52), "thread_pool_name"
        )

        self.engines = Gauge("engine", "model_name", "model_version", "engine")
        self.unlogged = Counter("access_log_dropped_lines", prefix=_OWN_PREFIX)

    def observe(
        self, model: str, method: str, code: str, seconds: float, run_seconds: float
    ) -> None:
        """Record a request: total seconds and seconds in the session. The data plane calls this."""
        if not self._known(model):
            model = UNKNOWN
        self.requests.add(model, code)
        if code != "OK":
            return
        entrypoint = ENTRYPOINT.get()
        api = method.lower() if entrypoint == "REST" else method
        self.latency.add(seconds, model, api, entrypoint)
        self.runtime.add(run_seconds, model, method, _RUNTIME)

    def loaded(self, model: str, version: int, engines: Iterable[str]) -> None:
        """Set the engines of a loaded version; an empty list removes it."""
        place = model, str(version)
        self.engines.replace(place, [(*place, engine) for engine in engines])

    def page(self) -> bytes:
        """Return all metrics in the text format."""
        lines: list[str] = []
        upstream = (self.latency, self.queuing, self.requests, self.runtime, self.warm_up)
        for item in (*upstream, self.engines, self.unlogged):
            lines += [f"# TYPE {item.name} {item.kind}", *item.lines()]
        return "".join(f"{line}\n" for line in lines).encode()


def _bounded(key: tuple[str, ...], series: Mapping[tuple[str, ...], object]) -> tuple[str, ...]:
    """Return a key, or empty label values if there are too many series."""
    if key in series or len(series) < MAX_SERIES:
        return key
    return ("",) * len(key)


def _labels(names: Iterable[str], values: Iterable[str]) -> str:
    return ",".join(
        f'{name}="{value.translate(_ESCAPES)}"' for name, value in zip(names, values, strict=True)
    )
