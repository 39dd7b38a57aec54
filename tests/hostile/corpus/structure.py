"""Graphs that do not hang together."""

from tests.hostile.case import BAD, HARMLESS, ODD, Case, Statuses, statuses
from tests.hostile.graphs import (
    BOOL,
    FLOAT,
    INT32,
    Type,
    constant,
    floats,
    graph,
    net,
    node,
    placeholder,
    written_graph,
)  # fmt: skip

KIND = "structure"


def case(name: str, made, *culprit: str, right: Statuses = BAD, heavy: bool = False) -> Case:
    """Return a case of a graph."""
    return Case(KIND, name, written_graph(made), right=right, culprit=culprit, heavy=heavy)


def later(name: str, make, *culprit: str, right: Statuses = BAD) -> Case:
    """Return a case of a large graph, made when it is needed."""
    return Case(KIND, name, lambda folder: written_graph(make())(folder), right=right,
                culprit=culprit, heavy=True)  # fmt: skip


def endless():
    """Return a loop of the old kind whose condition is always true."""
    frame = {"frame_name": "f", "is_constant": False, "parallel_iterations": 10}
    return net(
        constant("start", 0.0),
        floats("enter", "Enter", "start", **frame),
        floats("merge", "Merge", "enter", "next", N=2),
        constant("true", True),
        node("go", "Enter", "true", T=Type(BOOL), **{**frame, "is_constant": True}),
        node("cond", "LoopCond", "go"),
        floats("switch", "Switch", "merge", "cond"),
        floats("body", "Identity", "switch:1"),
        floats("next", "NextIteration", "body"),
        floats("exit", "Exit", "switch:0"),
        end="exit",
    )


def chain(count: int):
    """Return a long chain."""
    nodes = [placeholder()]
    for number in range(count):
        nodes.append(floats(f"n{number}", "Relu", nodes[-1].name))
    return graph(*nodes)


ENTER = {"frame_name": "f", "is_constant": False, "parallel_iterations": 10}
RUNS = statuses(0, 2, 5, 6)
"""It may be refused, or rewritten; running it may never end, or say what is wrong with it."""

CASES = (
    case("no node", graph()),
    case("two nodes of one name", net(floats("dense", "Relu", "x")), "'dense'"),
    case("three nodes of one name", net(*[node("same", "NoOp")] * 3), "'same'"),
    case("the same node twice, dead", net(constant("d", 1.0), constant("d", 1.0)), "'d'"),
    case("missing input", net(floats("lost", "Relu", "nowhere"), end="lost"), "'lost'",
         "'nowhere'"),
    case("missing input of a dead node", net(floats("lost", "Relu", "nowhere")), "'lost'"),
    case("missing control input", net(node("lost", "NoOp", "^nowhere")), "'lost'", "'nowhere'"),
    case("input without a name", net(floats("lost", "Relu", "")), "'lost'"),
    case("control input without a name", net(node("lost", "NoOp", "^")), "'lost'"),
    case("input of colons", net(floats("lost", "Relu", "::::")), "'lost'"),
    case("input with a negative port", net(floats("lost", "Relu", "x:-1")), "'lost'"),
    case("input with a huge port", net(floats("lost", "Relu", f"x:{1 << 70}")), "'lost'", "'x:"),
    case("input with a port of text", net(floats("lost", "Relu", "x:a")), "'lost'", "'x:a'"),
    case("input with port 1 of a node of one output", net(floats("lost", "Relu", "x:1")), "'lost'"),
    case("input from a node without outputs",
         net(node("none", "NoOp"), floats("lost", "Relu", "none"), end="lost"), "'lost'"),
    case("control input with a port", net(node("lost", "NoOp", "^x:0")), "'lost'", "'^x:0'"),
    case("control input twice", net(node("twice", "NoOp", "^x", "^x")), right=ODD),
    case("control input before data input",
         net(floats("early", "AddV2", "^weights", "x", "x")), "'early'"),
    case("too few inputs", net(floats("few", "AddV2", "x")), "'few'"),
    case("too many inputs", net(floats("many", "Relu", *["x"] * 1000)), "'many'"),
    case("node reads itself", net(floats("self", "Relu", "self"), end="self"), "'self'"),
    case("dead node reads itself", net(floats("self", "Relu", "self")), "'self'"),
    case("control input on itself", net(node("self", "NoOp", "^self")), "'self'"),
    case("cycle of two", net(floats("a", "Relu", "b"), floats("b", "Relu", "a"), end="a"),
         "'a'", "'b'"),
    case("cycle of control inputs", net(node("a", "NoOp", "^b"), node("b", "NoOp", "^a")),
         "'a'", "'b'"),
    later("cycle of 50,000", lambda: net(*(floats(f"c{i}", "Relu", f"c{(i + 1) % 50_000}")
                                           for i in range(50_000)), end="c0"), "'c"),
    case("cycle through Merge without NextIteration",
         net(constant("s", 0.0), floats("m", "Merge", "s", "r", N=2), floats("r", "Relu", "m"),
             end="r"), "'m'", "'r'"),
    case("unknown op", net(floats("odd", "Rleu", "x")), "'odd'"),
    case("empty op", net(node("odd", "")), "'odd'", right=ODD),  # no output needs it
    case("op with a path", net(node("odd", "../../etc/passwd")), "'odd'", right=ODD),
    case("op of 100,000 letters", net(node("odd", "A" * 100_000)), "'odd'", right=ODD),
    case("op of the runtime's own, _Send", net(node("odd", "_ScopedAllocator")), "'odd'"),
    case("empty name", net(node("", "NoOp")), "''"),
    case("name with a slash before it", net(node("/etc/passwd", "NoOp")), "'/etc/passwd'"),
    case("name with dots and slashes", net(node("../../etc/passwd", "NoOp")), right=ODD),
    case("name with a space", net(node("a b", "NoOp")), "'a b'"),
    case("name with a line break", net(node("a\nb", "NoOp")), "'a\\nb'"),
    case("name with an escape sequence", net(node("a\x1b[2Jb", "NoOp")), "'a\\x1b[2Jb'"),
    case("name with a colon", net(node("a:0", "NoOp")), "'a:0'"),
    case("name with a caret", net(node("^a", "NoOp")), "'^a'"),
    case("name with a null", net(node("a\0b", "NoOp")), "'a\\x00b'"),
    case("name of an emoji", net(node("\N{PILE OF POO}", "NoOp")), "\N{PILE OF POO}",
         "\\U0001f4a9"),
    case("name written from right to left", net(node("a\u202eb", "NoOp")), "'a\\u202eb'"),
    case("names that differ in case alone", net(node("Abc", "NoOp"), node("abc", "NoOp")),
         right=HARMLESS),
    case("device that is no device", net(node("far", "NoOp"), constant("c", 1.0)), right=HARMLESS),
    case("Split of 2^30", net(constant("axis", 0), floats("split", "Split", "axis", "x",
                                                          num_split=1 << 30)), "'split'"),
    case("Split of 2^62", net(constant("axis", 0), floats("split", "Split", "axis", "x",
                                                          num_split=1 << 62)), "'split'"),
    case("Split of minus one", net(constant("axis", 0), floats("split", "Split", "axis", "x",
                                                               num_split=-1)), "'split'"),
    case("Unpack of 2^31", net(floats("unpack", "Unpack", "x", num=1 << 31, axis=0)), "'unpack'"),
    case("ConcatV2 of 2^40", net(constant("axis", 0), node(
        "concat", "ConcatV2", "x", "x", "axis", T=Type(FLOAT), Tidx=Type(INT32), N=1 << 40)),
        "'concat'"),
    case("ConcatV2 of none", net(constant("axis", 0), node(
        "concat", "ConcatV2", "axis", T=Type(FLOAT), Tidx=Type(INT32), N=0)), "'concat'"),
    case("AddN of minus 2^63", net(floats("sum", "AddN", "x", N=-(1 << 63))), "'sum'"),
    case("Switch of 10,000 outputs",
         net(constant("index", 0), floats("many", "_SwitchN", "x", "index", num_outs=10_000)),
         right=ODD),
    later("a node of 1,000,000 outputs",
          lambda: net(constant("axis", 0), floats("split", "Split", "axis", "x",
                                                  num_split=1_000_000)), right=ODD),
    later("a node with 500,000 inputs",
          lambda: net(floats("sum", "AddN", *["x"] * 500_000, N=500_000)), right=ODD),
    later("a node with 200,000 control inputs",
          lambda: net(*(node(f"c{i}", "NoOp") for i in range(200_000)),
                      node("all", "NoOp", *(f"^c{i}" for i in range(200_000)))), right=ODD),
    later("chain of 100,000", lambda: chain(100_000), right=statuses(0, 5, 6)),
    case("Enter without Exit", net(floats("enter", "Enter", "x", **ENTER), end="enter"),
         right=RUNS),
    case("Exit without Enter", net(floats("leave", "Exit", "x"), end="leave"),
         right=statuses(0, 2, 5)),
    case("Merge of one that is fed back from nowhere",
         net(floats("m", "Merge", "x", "n", N=2), floats("n", "NextIteration", "m"), end="n"),
         right=RUNS, heavy=True),
    case("Merge of the same twice", net(floats("m", "Merge", "x", "x", N=2), end="m"), right=RUNS),
    case("Switch without Merge", net(constant("p", True), floats("s", "Switch", "x", "p")),
         right=RUNS),
    case("NextIteration without Merge", net(floats("n", "NextIteration", "x")), right=RUNS),
    case("NextIteration onto itself", net(floats("n", "NextIteration", "n")), right=ODD),
    case("LoopCond without a loop", net(constant("p", True), node("lc", "LoopCond", "p")),
         right=RUNS),
    case("a loop that never ends", endless(), right=RUNS, heavy=True),
    case("Enters of different frames into one Merge",
         net(floats("e1", "Enter", "x", **ENTER), floats("e2", "Enter", "x",
                                                         **{**ENTER, "frame_name": "g"}),
             floats("m", "Merge", "e1", "e2", N=2), floats("o", "Exit", "m"), end="o"), right=RUNS),
    case("a frame without a name", net(floats("enter", "Enter", "x", **{**ENTER, "frame_name": ""}),
                                       floats("o", "Exit", "enter"), end="o"), right=RUNS),
    case("a frame with 2^62 parallel iterations",
         net(floats("enter", "Enter", "x", **{**ENTER, "parallel_iterations": 1 << 62}),
             floats("o", "Exit", "enter"), end="o"), right=RUNS),
    case("a frame with minus one parallel iterations",
         net(floats("enter", "Enter", "x", **{**ENTER, "parallel_iterations": -1}),
             floats("o", "Exit", "enter"), end="o"), right=RUNS),
)  # fmt: skip
