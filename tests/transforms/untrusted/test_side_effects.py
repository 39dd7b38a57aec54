"""Which graphs are not run because of what their ops do beyond the graph."""

import re

import numpy as np
import pytest

from deploykit.transforms.common.errors import RefusedError
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.node import Node
from deploykit.transforms.ir.ops import op_defs
from deploykit.transforms.ir.protos import AttrValue, FunctionDefLibrary
from deploykit.transforms.untrusted.side_effects import (
    SIDE_EFFECTS,
    effects_in,
    inputs_behind,
    refuse,
    refuse_side_effects,
)
from tests.support import Containing, because, raises

X = Node("x", "Placeholder")


def call(name, function, read):
    attr = AttrValue()
    attr.func.name = function
    return Node(name, "PartitionedCall", (read,), {"f": attr})


def library(**nodes):
    """Functions of one node each."""
    result = FunctionDefLibrary()
    for name, node in nodes.items():
        function = result.function.add(node_def=[node.to_proto()])
        function.signature.name = name
    return result


def test_an_op_with_a_side_effect_is_refused():
    nodes = [
        Node.constant("name", np.array(b"/tmp/x", object)),
        Node("read", "ReadFile", ("name",)),
        X,
        Node("y", "Relu", ("x",)),
    ]
    what = Containing("'read'", "ReadFile")
    with raises(RefusedError, "acts-beyond", op="ReadFile", what=what) as raised:
        refuse_side_effects(Graph(nodes, outputs=("read", "y")))
    assert raised.value.exit_status == 3
    with pytest.raises(RefusedError):
        refuse_side_effects(Graph(nodes))
    refuse_side_effects(Graph(nodes, outputs=("read",)), ["ReadFile"])
    refuse_side_effects(Graph(nodes, outputs=("y",)))


def test_a_control_input_counts():
    abort = Node("abort", "Abort").with_attrs(exit_without_error=True)
    with raises(RefusedError, "acts-beyond", op="Abort", what=Containing("'abort'", "Abort")):
        refuse_side_effects(Graph([X, abort, Node("y", "Relu", ("x", "^abort"))], outputs=("y",)))


def test_functions_that_are_used_count():
    functions = library(
        f=call("n", "g", "a"), g=Node("p", "PyFunc", ("a",)), h=Node("w", "WriteFile", ("a",))
    )
    with raises(RefusedError, "acts-beyond", op="PyFunc", what=Containing("'p'", "PyFunc")):
        refuse_side_effects(Graph([X, call("y", "f", "x")], (), ("y",), library=functions))
    refuse_side_effects(Graph([X, call("y", "f", "x")], (), ("x",), library=functions))


def test_only_a_print_to_a_file_is_refused():
    text = Node.constant("text", np.array(b"hello", object))
    printed = Node("p", "PrintV2", ("text",))
    refuse_side_effects(Graph([text, printed.with_attrs(output_stream="stderr")]))
    with raises(
        RefusedError, "acts-beyond", op="PrintV2", what=Containing("'p'", because("effect-writes"))
    ):
        refuse_side_effects(Graph([text, printed.with_attrs(output_stream="file:///etc/x")]))


def test_samplers_are_refused_where_they_read_a_file():
    sampler = Node("s", "FixedUnigramCandidateSampler", ("x",))
    refuse_side_effects(Graph([X, sampler.with_attrs(vocab_file="")]))
    with raises(
        RefusedError,
        "acts-beyond",
        op="FixedUnigramCandidateSampler",
        what=Containing("'s'", because("effect-reads")),
    ):
        refuse_side_effects(Graph([X, sampler.with_attrs(vocab_file="/etc/passwd")]))
    with raises(
        RefusedError, "acts-beyond", op="Skipgram", what=Containing("'s'", because("effect-files"))
    ):
        refuse_side_effects(Graph([Node("s", "Skipgram").with_attrs(filename="/etc/passwd")]))


# Ops with telling names that stay within the graph.
HARMLESS = re.compile(
    r"AssignVariableXlaConcatND|BoostedTreesExampleDebugOutputs|(Close|Flush)SummaryWriter"
    r"|DeleteRpcFutureResource|DebugGradient(Ref)?Identity|IdentityReader(V2)?|Reader(Num|Re|Serialize)\w+|ShardedFile\w+"
    r"|SummaryWriter|TensorArrayWrite(V2|V3)?"
)
TELLING = re.compile("File|Save|Restore|Write|PyFunc|Debug|LMDB|Sql|Rpc|Reader")


# What waits for other threads, runs or processes; these do not wait long, or only name a group.
NOT_WAITING = re.compile(
    r"CollectiveAssignGroupV2|\w*Queue(V2)?|(Queue|Stage|(Ordered)?Map)(Size|IsClosed|Close|Clear)\w*"
)
WAITING = re.compile(
    r"queue|Stage$|Unstage|(Map|Stage)Peek|Collective|Nccl|Recv|Send|AllToAll|TakeMany$|TakeGradient"
    r"|HostCompute|AllReduce|AllGather|ReduceScatter|CrossReplica|Sleep|ReaderRead|Distributed",
    re.IGNORECASE,
)


def test_every_op_that_waits_has_been_judged():
    judged = set(" ".join(SIDE_EFFECTS.values()).split())
    waiting = {op for op in op_defs() if WAITING.search(op) and not NOT_WAITING.fullmatch(op)}
    assert waiting - judged == set()


@pytest.mark.parametrize(
    "op", ["Unstage", "QueueDequeueUpToV2", "OrderedMapPeek", "BarrierTakeMany", "SleepOp"]
)
def test_what_waits_counts_where_it_is_run(op):
    graph = Graph([X, Node("n", op), Node("y", "Relu", ("x",))], outputs=("y",))
    assert effects_in(graph) == []
    graph.outputs = ("n", "y")
    with raises(RefusedError, "acts-beyond", cut=Containing("--inputs "), op=op):
        refuse(effects_in(graph))


@pytest.mark.parametrize(("fed", "runs"), [("x", False), ("n:0,n:1", False), ("n", True)])
def test_what_waits_does_not_count_where_inputs_cut_it_off(fed, runs):
    nodes = [Node("n", "QueueDequeueManyV2"), Node("x", "AddV2", ("n", "n:1"))]
    graph = Graph([*nodes, Node("y", "Relu", ("x",))], fed.split(","), ("y",))
    assert [effect.tensors for effect in effects_in(graph)] == [("n", "n:1")] * runs
    if not runs:
        refuse_side_effects(graph)
        return
    with raises(RefusedError, "acts-beyond"):
        refuse_side_effects(graph)


@pytest.mark.parametrize("op", ["QueueDequeueManyV2", "Placeholder"])
def test_a_control_input_runs_what_is_fed(op):
    """TensorFlow runs a fed node that is waited for, unless it is a Placeholder."""
    waiting = Node("n", "QueueDequeueManyV2")
    fed = [waiting, Node("f", "Identity", ("n",))] if op != "Placeholder" else [Node("f", op)]
    nodes = [*fed, Node("y", "Relu", ("f", "^f"))]
    graph = Graph(nodes, ["f"], ("y",))
    if op == "Placeholder":
        refuse_side_effects(graph)
        return
    with raises(
        RefusedError,
        "acts-beyond",
        cut=Containing("--inputs "),
        op="QueueDequeueManyV2",
        what=Containing(because("effect-waits")),
    ):
        refuse_side_effects(graph)
    assert inputs_behind(Graph([waiting, Node("y", "Relu", ("n", "^n"))], [], ("y",)), {"n"}) == ()


def test_every_op_with_a_telling_name_has_been_judged():
    judged = set(" ".join(SIDE_EFFECTS.values()).split())
    telling = {op for op in op_defs() if TELLING.search(op) and not HARMLESS.fullmatch(op)}
    assert telling - judged == set()
