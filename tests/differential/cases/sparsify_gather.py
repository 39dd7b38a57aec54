"""A column of mostly zeros becomes a hash table; the group that fills it runs before the ids."""

from collections.abc import Callable
from pathlib import Path

import numpy as np

from deploykit.transforms.ir.graph import Graph
from tests.differential.case import Case
from tests.differential.graphs import const, placeholder
from tests.support import build, random, tf

NAME = "sparsify_gather"
SMALL = np.array([[0.2], [1e-6], [1.2], [0.001], [-0.5], [0.0]], np.float32)


def net(make: Callable) -> Callable[[], Graph]:
    """Return a graph whose ids, 0 to 3, wait for group_deps; only then are the tables full."""

    def body():
        raw = tf.raw_ops
        ready = raw.NoOp(name="group_deps")
        x = placeholder(4)
        with tf.control_dependencies([ready]):
            x = raw.Abs(x=x, name="ready")
        ids = raw.Cast(x=raw.Mul(x=x, y=const(3.0, "three"), name="scaled"), DstT=tf.int64,
                       name="ids")  # fmt: skip
        make(raw, ids)

    return lambda: build(body, ["x"], ["out"])


def lookup(weights=SMALL, op="GatherV2"):
    def make(raw, ids):
        source = raw.Identity(input=const(weights, "w/part_1"), name="w/part_1/read")
        if op == "Gather":
            found = raw.Gather(params=source, indices=ids, name="gather")
        else:
            found = raw.GatherV2(params=source, indices=ids, axis=const(0, "axis"), name="gather")
        raw.Relu(features=found, name="out")

    return net(make)


def two_tables(raw, ids):
    both = []
    for number, weights in enumerate((SMALL, random(9, 1))):
        name = f"w{number}"
        source = raw.Identity(input=const(weights, f"{name}/part_1"), name=f"{name}/read")
        both.append(raw.Gather(params=source, indices=ids, name=f"{name}/gather"))
    axis = const(1, "axis")
    raw.ConcatV2(values=both, axis=axis, name="out")


def other_reader_of_ids(raw, ids):
    source = raw.Identity(input=const(SMALL, "w"), name="w/read")
    found = raw.Gather(params=source, indices=ids, name="gather")
    floats = raw.Cast(x=ids, DstT=found.dtype, name="floats")
    rows = raw.ExpandDims(input=floats, axis=const(-1, "last"), name="rows")
    raw.Mul(x=found, y=rows, name="out")


def of_variables(parts: int = 0):
    """Return what gathers from a variable of TensorFlow 1, whole or in parts, and how it saves."""

    def make(raw, ids):
        v1 = tf.compat.v1
        values = np.concatenate([SMALL, random(6, 1)])
        options = {"use_resource": False, "initializer": v1.constant_initializer(values)}
        if parts:
            options["partitioner"] = v1.fixed_size_partitioner(parts)
            options["initializer"] = v1.random_uniform_initializer(-1, 1, seed=1)
        made = v1.get_variable("w", shape=values.shape, **options)
        found = [raw.Gather(params=v._snapshot, indices=ids, name=f"gather_{k}")
                 for k, v in enumerate(list(made) if parts else [made])]  # fmt: skip
        raw.AddN(inputs=found, name="out")
        v1.train.Saver()

    return make


def checkpoint(make: Callable) -> Callable[[Path], None]:
    """Return what saves the variables of a graph."""

    def write(folder: Path) -> None:
        v1 = tf.compat.v1
        with tf.Graph().as_default():
            make(tf.raw_ops, tf.constant([0], tf.int64))
            with v1.Session() as session:
                session.run(v1.global_variables_initializer())
                v1.train.Saver().save(session, str(folder / "model"), write_meta_graph=False)

    return write


# What saves the variables loses them there, and the graph does not load while it is in it.
READ = f'{NAME}(input_checkpoint="{{folder}}/model") strip_unused_nodes'
WHOLE, PARTS = of_variables(), of_variables(2)
WAIT = ("lookups wait",)

CASES = [
    Case("GatherV2", lookup(), NAME, deviations=WAIT),
    Case("Gather", lookup(op="Gather"), NAME, deviations=WAIT),
    Case("nothing but zeros", lookup(np.zeros((6, 1), np.float32)), NAME, deviations=WAIT),
    Case("dense", lookup(random(50, 1)), NAME, deviations=WAIT),
    Case("two tables", net(two_tables), NAME, deviations=WAIT),
    Case("ids that are also read elsewhere", net(other_reader_of_ids), NAME, deviations=WAIT),
    Case("a variable", net(WHOLE), READ, deviations=WAIT, files=checkpoint(WHOLE)),
    Case("a variable in parts", net(PARTS), READ, deviations=WAIT, files=checkpoint(PARTS)),
]
