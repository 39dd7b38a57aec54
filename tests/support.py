"""What the tests share: graphs built with TensorFlow's own ops, runs, comparisons, golden texts."""

import contextlib
import functools
import importlib
import json
import os
import re
import string
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from deploykit.transforms.common import messages
from deploykit.transforms.common.errors import CodedError, plain
from deploykit.transforms.ir import pipeline
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.runtime.differences import compare
from deploykit.transforms.runtime.session import Session

GOLDEN = Path(__file__).parent / "golden"
THEIRS = ("config-not-parsed", "runtime-failed", "module-not-importable", "transform-raised")
LONGEST = 400  # characters of fields that are shown
COLLECTED = pytest.StashKey[tuple[pytest.Item, ...]]()  # all tests, also those passed over
running: pytest.Item | None = None  # the test that runs, as conftest.py says


class _TensorFlow:
    """TensorFlow, which is imported with the first use: test modules are collected without it."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name != "__version__":  # pytest looks for these in all names
            raise AttributeError(name)
        return getattr(importlib.import_module("tensorflow"), name)


tf: Any = _TensorFlow()


@contextlib.contextmanager
def building(inputs: Iterable[str] = (), outputs: Iterable[str] = ()) -> Iterator[Graph]:
    """Yield a Graph that the block builds with TensorFlow's ops; it has nodes when the block ends.

    with building(["x"], ["out"]) as graph:
        tf.nn.relu(tf.compat.v1.placeholder(tf.float32, [2], "x"), name="out")
    """
    graph = Graph()
    with tf.Graph().as_default() as made:
        yield graph
    vars(graph).update(vars(Graph.from_graph_def(made.as_graph_def(), inputs, outputs)))


def build(make: Callable[[], object], inputs=(), outputs=()) -> Graph:
    """Call `make` inside a new tf.Graph, and return what it built."""
    with building(inputs, outputs) as graph:
        make()
    return graph


def built(inputs=(), outputs=()) -> Callable[[Callable[..., object]], Callable[..., Graph]]:
    """Decorate a function that builds a graph with TensorFlow's ops: it then returns that graph."""

    def decorate(make: Callable[..., object]) -> Callable[..., Graph]:
        @functools.wraps(make)
        def graph_of(*arguments: Any, **named: Any) -> Graph:
            return build(lambda: make(*arguments, **named), inputs, outputs)

        return graph_of

    return decorate


def random(*shape: int, seed: int = 0, low: float = -1.0, high: float = 1.0) -> np.ndarray:
    """Return uniform float32 values that depend on the seed and the shape alone."""
    values = np.random.default_rng([seed, *shape]).uniform(low, high, shape)
    return values.astype(np.float32)


def run(graph: Graph, feeds: dict[str, np.ndarray], grappler: bool = False) -> list[np.ndarray]:
    """Return the graph's outputs; Grappler is off, so the graph itself is what computes."""
    session = Session(b"".join(graph.serialized()), grappler)
    return session.run(list(graph.outputs), feeds)


def transform(graph: Graph, text: str) -> Graph:
    """Return the graph after the steps of a transform string."""
    for result in pipeline.run(graph, pipeline.parse(text)):
        graph = result.graph
    return graph


def error(before: Graph, after: Graph, feeds: dict[str, np.ndarray]) -> float:
    """Return the largest relative difference of the outputs of two graphs."""
    differences = compare(run(before, feeds), run(after, feeds))
    return max(max(d.max_relative_error, d.rms_relative_error) for d in differences)


def call_here(
    function: str,
    *arguments: Any,
    env: object = None,
    forced: object = None,
    kept: bool = False,
) -> Any:
    """Do in this process what `child.call` does in a child: one TensorFlow serves all tests."""
    module, name = function.split(":")
    return getattr(importlib.import_module(module), name)(*arguments)


def calls_of(act: Callable[[], object]) -> int:
    """Return how many functions of Python and C are called, on any machine and under any load.

    A linear algorithm calls twice as many for twice the work. What one call of C does is not seen,
    nor what an operator does, such as `in` with a list.
    """
    count = 0

    def called(frame: object, event: str, argument: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(called)
    try:
        act()
    finally:
        sys.setprofile(before)
    return count


def flops_in_tensorflow(graph: Any) -> dict[str, int]:
    """Return the operations of each op, as TensorFlow's profiler counts them."""
    profiler = tf.compat.v1.profiler
    options = profiler.ProfileOptionBuilder(profiler.ProfileOptionBuilder.float_operation())
    found = profiler.profile(graph, cmd="op", options=options.with_empty_output().build())
    counted, left = {}, list(found.children)
    while left:
        each = left.pop()
        counted[each.name] = each.float_ops
        left += each.children
    return counted


def ops(graph: Graph) -> dict[str, int]:
    """Return how often each op occurs."""
    counts: dict[str, int] = {}
    for node in graph:
        counts[node.op] = counts.get(node.op, 0) + 1
    return counts


class Containing(str):
    """A text that equals every text with these parts in this order.

    Where a sentence has values and no code, tests name the values: the words may change.
    """

    __slots__ = ("_pattern",)
    __hash__ = str.__hash__

    def __new__(cls, *parts: str) -> "Containing":
        made = super().__new__(cls, " ... ".join(parts))
        made._pattern = re.compile(r"[\s\S]*?".join(map(re.escape, parts)))
        return made

    @property
    def pattern(self) -> str:
        """The regular expression of such a text."""
        return self._pattern.pattern

    def __eq__(self, other: object) -> bool:
        return isinstance(other, str) and self._pattern.search(other) is not None

    def __ne__(self, other: object) -> bool:
        return not self == other


@contextlib.contextmanager
def raises(kind: type[CodedError], code: str, /, **fields: object) -> Iterator[Any]:
    """Expect an error of a class, with a code and at least these fields."""
    with pytest.raises(kind) as found:
        yield found
    assert_error(found.value, code, **fields)


def _plain(value: object) -> object:
    """Return a field as an error keeps it."""
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return value if isinstance(value, Containing) else plain(value)


def assert_error(error: BaseException | None, code: str, /, **fields: object) -> None:
    """Check the code of an error, and some of its fields."""
    assert isinstance(error, CodedError), repr(error)
    assert error.code == code, f"{error!r}: {error}"
    for name, expected in fields.items():
        assert name in error.fields, f"{error!r} has no field {name}"
        assert error.fields[name] == _plain(expected), f"{error!r}: {error}"


def coded(error: BaseException | None) -> str:
    """Return an error's class, code and fields as one line of a golden text.

    The words may change; reasons in the words of other software are left out.
    """
    assert isinstance(error, CodedError), repr(error)
    assert "\n" not in str(error)
    theirs = {"reason"} if error.code in THEIRS else set()
    fields = {name: error.fields[name] for name in sorted(error.fields.keys() - theirs)}
    text = json.dumps(fields, ensure_ascii=False)
    return f"{type(error).__name__} {error.code} {text[:LONGEST]}\n"


def refusal(call: Callable[..., object], *arguments: Any, **named: Any) -> str:
    """Return the error that a call raises, as `coded` shows it."""
    with pytest.raises(CodedError) as found:
        call(*arguments, **named)
    return coded(found.value)


@functools.cache
def reasons() -> dict[str, str]:
    """Return the sentences of golden/reasons.json by code, such as why a transform skips a node.

    They are not errors, so the product has no codes for them; this file gives each one a code.
    """
    return json.loads((GOLDEN / "reasons.json").read_bytes())


def because(code: str, /, **fields: object) -> str:
    """Return the sentence of a code in golden/reasons.json, with all its fields."""
    template = reasons()[code]
    assert fields.keys() == messages.fields_of(template), f"{code} has other fields: {template}"
    return messages.render(template, fields)


def skipped(node: str, code: str, /, **fields: object) -> str:
    """Return what a report lists for a node that a transform skips for this reason."""
    return f"node '{node}': {because(code, **fields)}"


def says(code: str, /, **fields: object) -> str:
    """Return the regular expression of a message or a reason; fields not given may be any."""
    template = messages.template(code) or reasons()[code]
    unknown = fields.keys() - messages.fields_of(template) - {"source"}
    assert not unknown, f"{code} has no field {unknown}"
    found = rf"{re.escape(str(fields['source']))}: (?:.*: )?" if "source" in fields else ""
    for text, name, spec, conversion in string.Formatter().parse(template):
        found += re.escape(text)
        if isinstance(fields.get(name or ""), Containing):
            found += rf"[\s\S]*?{fields[name or ''].pattern}[\s\S]*?"
        elif name in fields:
            place = (
                f"{{{name}{'!' + conversion if conversion else ''}{':' + spec if spec else ''}}}"
            )
            found += re.escape(messages.render(place, {name: plain(fields[name])}))
        elif name is not None:
            found += "[\\s\\S]*"
    return found


def showing(code: str, /, **fields: object) -> Containing:
    """Return a text that equals every text with a message or a reason, with these fields."""
    made = Containing(code)
    made._pattern = re.compile(says(code, **fields))
    return made


def shows(text: object, code: str, /, **fields: object) -> bool:
    """Say whether a text holds the message of an error or a reason, with these fields."""
    return re.search(says(code, **fields), str(text)) is not None


def lines_with(text: str, code: str, /, **fields: object) -> list[str]:
    """Return the lines with the message of an error or a reason, with these fields."""
    return [line for line in text.splitlines() if shows(line, code, **fields)]


def golden_name(test: pytest.Item) -> str | None:
    """Return the name in a test's mark `golden`, with the test's parameters filled in."""
    mark = test.get_closest_marker("golden")
    if mark is None or not mark.args:
        return None
    return mark.args[0].format(**(test.callspec.params if hasattr(test, "callspec") else {}))


def assert_golden(*stages: object) -> None:
    """Compare texts, with `---` between them, with the golden file that the test's mark names."""
    name = golden_name(running)
    assert name, "name the golden file in a mark: @pytest.mark.golden(NAME)"
    assert_written(GOLDEN / f"{name}.txt", "---\n".join(map(str, stages)))


def assert_written(path: Path, text: str) -> None:
    """Compare a file with its text; `make golden`, which runs marked tests, writes it instead."""
    assert running.get_closest_marker("golden"), "mark the test: @pytest.mark.golden"
    if os.environ.get("DEPLOYKIT_GOLDEN") == "write":
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    assert path.exists(), f"{path} is missing; run `make golden`"
    assert text == path.read_text(), f"{path} differs; if the new text is right, run `make golden`"
