"""Nodes of one op become nodes of another."""

from tests.differential.case import Case, Refusal, error_of
from tests.differential.graphs import const, fashion_keras, net, two_layers
from tests.support import random, tf

NAME = "rename_op"


def sums(raw, x):
    y = raw.AddV2(x=x, y=const(random(3), "a"), name="first")
    with tf.control_dependencies([x]):
        y = raw.AddV2(x=y, y=x, name="second")
    raw.Mul(x=y, y=const(random(3), "b"), name="out")


CASES = [
    Case("one op", net(sums), f"{NAME}(old_op_name=AddV2, new_op_name=Add)"),
    Case("one after another", net(sums), f"{NAME}(old_op_name=AddV2, new_op_name=Add) "
         f"{NAME}(old_op_name=Add, new_op_name=Mul) {NAME}(old_op_name=Mul, new_op_name=Sub)"),
    Case("an op that does not occur", net(sums), f"{NAME}(old_op_name=Relu, new_op_name=Elu)"),
    Case("small net", two_layers, f"{NAME}(old_op_name=AddV2, new_op_name=Add)",
         deviations=("pruned",)),
    Case("frozen Fashion, Keras", fashion_keras, f"{NAME}(old_op_name=AddV2, new_op_name=Add)"),
    Refusal("no new op", net(sums), f"{NAME}(old_op_name=AddV2)",
            "rename_op expects exactly one 'old_op_name' and",
            error_of("parameter-missing", name="new_op_name")),
    Refusal("no old op", net(sums), f"{NAME}(new_op_name=Add)",
            "rename_op expects exactly one 'old_op_name' and",
            error_of("parameter-missing", name="old_op_name")),
]  # fmt: skip
