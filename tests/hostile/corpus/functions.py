"""Libraries of functions that do not end, do not exist, or grow without bound."""

from deploykit.transforms.ir.protos import FunctionDef, GraphDef
from tests.hostile.case import BAD, HARMLESS, ODD, UNPROVED, Case, Statuses, statuses
from tests.hostile.graphs import (
    BOOL,
    FLOAT,
    INT32,
    Func,
    Type,
    constant,
    floats,
    function,
    net,
    node,
    written_graph,
)

KIND = "functions"
SEEN = statuses(2, inspect=(0, 2), diff=(0, 2))
"""It takes TensorFlow's own rules to see it, which a command that only reads need not ask."""
CALL = {"Tin": [Type(FLOAT)], "Tout": [Type(FLOAT)]}


def call(name: str, target: str, source: str = "x"):
    """Return a node that calls a function."""
    return node(name, "PartitionedCall", source, f=Func(target), **CALL)


def one(name: str, *targets: str) -> FunctionDef:
    """Return a function that calls others, one after another."""
    nodes, last = [], "x"
    for number, target in enumerate(targets):
        nodes.append(call(f"c{number}", target, last))
        last = f"c{number}:output:0"
    return function(name, nodes, results=[("y", FLOAT, last)])


def case(name: str, make, *culprit: str, right: Statuses = BAD, heavy: bool = False) -> Case:
    """Return a case of a graph."""
    return Case(KIND, name, lambda folder: written_graph(make())(folder), right=right,
                culprit=culprit, heavy=heavy)  # fmt: skip


def using(*functions: FunctionDef, first: str | None = None) -> GraphDef:
    """Return a net that calls the first function."""
    return net(call("call", first or functions[0].signature.name), functions=functions)


def replica(depth: int, width: int) -> GraphDef:
    """Return functions each of which calls the next one some times."""
    last = function(
        f"f{depth}", [floats("r", "Relu", "x")], results=[("y", FLOAT, "r:activations:0")]
    )
    return using(*(one(f"f{level}", *[f"f{level + 1}"] * width) for level in range(depth)), last)


def looping(body: str) -> GraphDef:
    """Return a While whose body contains it."""
    inner = node("w", "While", "x", T=[Type(FLOAT)], cond=Func("cond"), body=Func(body))
    cond = function("cond", [constant("c", True)], results=[("y", BOOL, "c:output:0")])
    own = function("body", [inner], results=[("y", FLOAT, "w:output:0")])
    return net(inner, functions=[cond, own])


def with_gradient() -> GraphDef:
    """Return a function that is its own gradient, and another's that is missing."""
    made = using(one("f", "g"), function("g", [], results=[("y", FLOAT, "x")]))
    made.library.gradient.add(function_name="f", gradient_func="f")
    made.library.gradient.add(function_name="nothing", gradient_func="none")
    return made


ROUND = function("round", [floats("a", "Relu", "b:activations:0"), floats("b", "Relu",
"a:activations:0")],
                 results=[("y", FLOAT, "a:activations:0")])  # fmt: skip

CASES = (
    case("a function that calls itself", lambda: using(one("f", "f")), "'f'"),
    case("a function that calls itself, not called", lambda: net(functions=[one("f", "f")]), "'f'"),
    case("two functions that call each other", lambda: using(one("f", "g"), one("g", "f")), "'f'",
         "'g'"),
    case("fifty functions in a circle",
         lambda: using(*(one(f"f{i}", f"f{(i + 1) % 50}") for i in range(50))), "'f"),
    case("a function that names itself as its op",
         lambda: net(node("call", "f", "x"), functions=[
             function("f", [node("again", "f", "x")], results=[("y", FLOAT, "again:y:0")])]),
                      "'f'"),
    case("a While in its own body", lambda: looping("body"), "'body'"),
    case("a While with a body that is missing", lambda: looping("nothing"), "'nothing'"),
    case("a function that calls a missing one", lambda: using(one("f", "nothing")), "'nothing'"),
    case("a call of a missing function", lambda: net(call("call", "nothing")), "'nothing'"),
    case("two functions of one name", lambda: using(one("f"), one("f")), "'f'"),
    case("a function with the name of an op",
         lambda: using(function("Relu", [], results=[("y", FLOAT, "x")])), "'Relu'"),
    case("a function without a name",
         lambda: net(functions=[function("", [], results=[("y", FLOAT, "x")])]), right=ODD),
    case("a function with a name of an escape",
         lambda: using(function("a\x1b[2J", [], results=[("y", FLOAT, "x")])), right=ODD),
    case("functions that double 2^40 times", lambda: replica(40, 2), "'f"),
    case("functions that double 2^20 times", lambda: replica(20, 2), heavy=True,
         right=ODD),
    case("functions 10 wide and 12 deep", lambda: replica(12, 10), "'f"),
    case("functions 200 deep", lambda: replica(200, 1), right=ODD),
    case("functions 10,000 deep", lambda: replica(10_000, 1), "'f"),
    case("a function that returns what is not there",
         lambda: using(function("f", [], results=[("y", FLOAT, "gone")])), "'f'", "'gone'"),
    case("a function that returns nothing under its name",
         lambda: using(FunctionDef(signature={"name": "f", "input_arg": [{"name": "x", "type": 1}],
                                              "output_arg": [{"name": "y", "type": 1}]})), "'f'",
                                              right=SEEN),
    case("a function that returns another type",
         lambda: using(function("f", [], results=[("y", INT32, "x")])), "'f'", "'call'",
         right=SEEN),
    case("a function whose nodes form a circle", lambda: using(ROUND), "'round'"),
    case("a function with two nodes of one name",
         lambda: using(function("f", [floats("a", "Relu", "x"), floats("a", "Relu", "x")],
                                results=[("y", FLOAT, "x")])), "'f'"),
    case("a function with a node that reads another without its output's name",
         lambda: using(function("f", [floats("a", "Relu", "x"), floats("b", "Relu", "a")],
                                results=[("y", FLOAT, "b:activations:0")])), "'f'", right=SEEN),
    case("a function with a node that reads what is not there",
         lambda: using(function("f", [floats("a", "Relu", "gone:0")],
                                results=[("y", FLOAT, "a:activations:0")])), "'f'"),
    case("a function with an output that its node has not",
         lambda: using(function("f", [floats("a", "Relu", "x")],
                                results=[("y", FLOAT, "a:nothing:7")])), "'f'", right=SEEN),
    case("a function with an unknown op",
         lambda: using(function("f", [floats("a", "Rleu", "x")], results=[("y", FLOAT, "x")])),
         "'f'"),
    case("a function with a constant of another type",
         lambda: using(function("f", [constant("c", 1.0, of=INT32)], results=[("y", FLOAT, "x")])),
         "'f'"),
    case("a function with arguments of one name twice",
         lambda: using(function("f", [], args=[("x", 1), ("x", 1)], results=[("y", FLOAT, "x")])),
         "'f'"),
    case("a function with 100,000 arguments",
         lambda: net(functions=[function("f", [], args=[(f"x{i}", 1) for i in range(100_000)])]),
         right=ODD, heavy=True),
    case("a call with too few arguments",
         lambda: net(node("call", "PartitionedCall", f=Func("f"), Tin=[], Tout=[Type(1)]),
                     functions=[one("f")]), "'call'", right=SEEN),
    case("a call with the wrong results",
         lambda: net(node("call", "PartitionedCall", "x", f=Func("f"), Tin=[Type(1)],
         Tout=[Type(1)] * 3),
                     functions=[one("f")]), "'call'", right=UNPROVED),
    case("gradients of themselves", with_gradient, right=ODD),
    case("100,000 functions nobody calls",
         lambda: net(functions=[function(f"f{i}", []) for i in range(100_000)]), right=HARMLESS,
         heavy=True),
    case("a SymbolicGradient of a function that calls it",
         lambda: using(function("f", [node("g", "SymbolicGradient", "x", f=Func("f"), **CALL)],
                                results=[("y", FLOAT, "g:output:0")])), "'f'"),
    case("a function named in an unknown attribute",
         lambda: using(function("f", [floats("r", "Relu", "x", _later=Func("f"))],
                                results=[("y", FLOAT, "r:activations:0")])), right=ODD),
)  # fmt: skip
