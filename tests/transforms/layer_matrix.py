"""Layers in every combination of what kernels differ in, and runs that may end their process."""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from deploykit.transforms.common.errors import CrashError, GraphError
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.runtime.child_process import Worker
from tests.support import building, random, tf

H, W, C, OUT = 7, 6, 4, 6
TYPES = ("float32", "float64", "float16", "bfloat16")
SHAPES = {
    "known": lambda *sizes: list(sizes),
    "open batch": lambda _, *sizes: [None, *sizes],
    "only batch": lambda batch, *sizes: [batch, *([None] * len(sizes))],
    "only rank": lambda *sizes: [None] * len(sizes),
    "no rank": lambda *_: None,
}
FIXED = ("known", "only batch")  # shapes with one batch
EXPLICIT = ((0, 0), (1, 2), (0, 1), (0, 0))


@dataclass(frozen=True)
class Case:
    """A layer, and what is known of its image."""

    kind: str = "conv"
    dtype: str = "float32"
    first: bool = False  # channels before height and width
    groups: int = 1
    dilations: tuple[int, int] = (1, 1)
    padding: str = "SAME"
    strides: tuple[int, int] = (1, 1)
    shape: str = "open batch"
    batch: int = 1  # where it is fixed

    def around(self, spatial, other) -> list:
        """Return what stands along the spatial axes, between or behind what stands elsewhere."""
        return [other, other, *spatial] if self.first else [other, *spatial, other]

    def sizes(self, batch: int) -> tuple[int, ...]:
        return (batch, C, H, W) if self.first else (batch, H, W, C)

    def __str__(self) -> str:
        return "-".join(str(value).replace(" ", "") for value in vars(self).values())


def cases(kinds=("conv", "depthwise"), **fixed) -> Iterator[Case]:
    """Yield every combination; `fixed` names the few values that a dimension takes."""
    dimensions = {
        "kind": kinds,
        "dtype": TYPES,
        "first": (False, True),
        "groups": (1, 2),
        "dilations": ((1, 1), (2, 2), (1, 2)),
        "padding": ("SAME", "VALID", "EXPLICIT"),
        "strides": ((1, 1), (2, 2), (1, 2)),
        "shape": tuple(SHAPES),
        "batch": (1, 3),
    } | fixed
    for values in itertools.product(*dimensions.values()):
        case = Case(**dict(zip(dimensions, values, strict=True)))
        strided = max(case.strides) > 1
        if strided and (max(case.dilations) > 1 or (case.kind != "conv" and 1 in case.strides)):
            continue  # TensorFlow refuses these
        if case.kind == "depthwise" and (case.groups > 1 or len(set(case.dilations)) > 1):
            continue
        if case.batch != 1 and case.shape not in FIXED:
            continue
        yield case


def layer(case: Case, y, weights=None, padding=None, name="layer"):
    """Return the layer of a case."""
    raw = tf.raw_ops.Conv2D if case.kind == "conv" else tf.raw_ops.DepthwiseConv2dNative
    if weights is None:
        last = (C // case.groups, OUT) if case.kind == "conv" else (C, 2)
        weights = random(3, 3, *last)
    padding = padding or case.padding
    rows = EXPLICIT if not case.first else (*EXPLICIT[:1], EXPLICIT[3], *EXPLICIT[1:3])
    return raw(
        input=y,
        filter=tf.constant(weights, case.dtype),
        strides=case.around(case.strides, 1),
        dilations=case.around(case.dilations, 1),
        padding=padding,
        explicit_paddings=np.ravel(rows).tolist() if padding == "EXPLICIT" else [],
        data_format="NCHW" if case.first else "NHWC",
        name=name,
    )


def image(case: Case):
    """Return the input of a case."""
    shape = SHAPES[case.shape](*case.sizes(case.batch))
    return tf.compat.v1.placeholder(case.dtype, shape, name="x")


def biased(case: Case, y):
    """Return a layer with a bias and a Relu."""
    channels = OUT if case.kind == "conv" else 2 * C
    bias = tf.constant(random(channels, seed=3), case.dtype)
    y = tf.nn.bias_add(y, bias, "NCHW" if case.first else "NHWC", name="biased")
    return tf.nn.relu(y, name="relu")


def net(case: Case, before=lambda case, y: y, behind=biased) -> Graph:
    """Return a layer with what lies around it; None where TensorFlow refuses to build it."""

    with building(["x"], ["out"]) as graph:
        tf.identity(behind(case, layer(case, before(case, image(case)))), name="out")
    graph.prune()
    return graph


def feeds(case: Case, batch: int, low: float = 0.0) -> dict[str, np.ndarray]:
    """Return an image for a batch."""
    from deploykit.transforms.ir.tensors import numpy_type

    return {"x": random(*case.sizes(batch), seed=batch, low=low).astype(numpy_type(case.dtype))}


def batches(case: Case) -> tuple[int, ...]:
    return (case.batch,) if case.shape in FIXED else (1, 2, 3)


class Sessions:
    """What runs in the child: one graph after the other."""

    def run(self, content: bytes, fetches: list[str], feeds: dict[str, np.ndarray]):
        from deploykit.transforms.runtime.session import Session

        return Session(content, grappler=self.grappler).run(fetches, feeds)

    def __init__(self, grappler: bool = False) -> None:
        self.grappler = grappler


class Runner:
    """Runs graphs in a child process, and a new one where a graph ended it."""

    def __init__(self, onednn: str = "1", grappler: bool = False) -> None:
        self._onednn, self._grappler = onednn, grappler
        self._worker: Worker | None = None

    def run(self, graph: Graph, feeds: dict[str, np.ndarray]) -> list[np.ndarray] | str:
        """Return the outputs, or what went wrong."""
        if self._worker is None:
            self._worker = Worker(
                "tests.transforms.layer_matrix:Sessions",
                self._grappler,
                forced={"TF_ENABLE_ONEDNN_OPTS": self._onednn},
            )
        try:
            content = b"".join(graph.serialized())
            return self._worker.ask("run", content, list(graph.outputs), feeds)
        except GraphError as error:
            return str(error)
        except CrashError as error:
            self.close()
            return str(error)

    def close(self) -> None:
        if self._worker is not None:
            self._worker.close()
            self._worker = None
