"""Prints come between nodes and their readers."""

from tests.differential.case import Case, Refusal, error_of
from tests.differential.graphs import const, fashion_tf1, net
from tests.support import random, tf

NAME = "insert_logging"


def sums(raw, x):
    """Return six nodes that are read, three of them sums or products."""
    first = raw.AddV2(x=x, y=const(random(3), "a"), name="add_node1")
    second = raw.AddV2(x=first, y=x, name="add_node2")
    product = raw.Mul(x=second, y=const(random(2, 1), "b"), name="product")
    raw.Relu(features=product, name="out")


def all_ports(raw, x):
    parts = raw.Split(axis=const(1, "axis"), value=x, num_split=3, name="parts")
    raw.AddN(inputs=[parts[2], parts[0], parts[1]], name="out")


def first_ports(raw, x):
    found = raw.TopKV2(input=x, k=const(2, "k"), name="found")
    floats = raw.Cast(x=found[1], DstT=x.dtype, name="floats")
    raw.Sub(x=found[0], y=floats, name="out")


def waiting(raw, x):
    y = raw.Relu(features=x, name="relu")
    with tf.control_dependencies([y]):
        raw.Neg(x=y, name="out")


def table(raw, x):
    made = raw.HashTableV2(key_dtype=tf.int64, value_dtype=tf.float32, name="table")
    keys, values = const([0, 1], "keys", tf.int64), const([2.0, 3.0], "values")
    fill = raw.InitializeTableV2(table_handle=made, keys=keys, values=values, name="fill")
    with tf.control_dependencies([fill]):
        key, default = const(1, "key", tf.int64), const(0.0, "default")
        found = raw.LookupTableFindV2(table_handle=made, keys=key, default_value=default)
    raw.Mul(x=x, y=found, name="out")


CASES = [
    Case("all nodes", net(sums), NAME),
    Case("two ops", net(sums), f"{NAME}(op=AddV2, op=Mul)"),
    Case("a prefix", net(sums), f"{NAME}(prefix=add_node)"),
    Case("an op and a prefix", net(sums), f"{NAME}(op=AddV2, op=Const, prefix=a, prefix=p)"),
    Case("an op that does not occur", net(sums), f"{NAME}(op=Conv2D)"),
    Case("name, op and message", net(sums), f'{NAME}(op=Mul, show_name=true, show_op=true, '
         'message="its values")'),
    Case("few values, once", net(sums), f"{NAME}(first_n=1, summarize=2)"),
    Case("all outputs of a node", net(all_ports), f"{NAME}(op=Split)"),
    Case("several outputs", net(sums, outputs=("product", "out", "add_node1")), NAME),
    Case("outputs of two types", net(first_ports), f"{NAME}(op=TopKV2)"),
    Case("a resource", net(table), f"{NAME}(op=HashTableV2)", deviations=("nothing to print",)),
    Case("waited for", net(waiting), f"{NAME}(op=Relu)"),
    Case("frozen Fashion, TF1", fashion_tf1, f"{NAME}(op=Relu, summarize=3, first_n=1)"),
    Refusal("first_n is no number", net(sums), f"{NAME}(first_n=once)",
            "Couldn't interpret the first_n argument as a number:once",
            error_of("parameter-value", name="first_n", got="once")),
    Refusal("show_name is no truth value", net(sums), f"{NAME}(show_name=yes)",
            "Couldn't interpret the show_name argument as a boolean:yes",
            error_of("parameter-value", name="show_name", got="yes")),
]  # fmt: skip
