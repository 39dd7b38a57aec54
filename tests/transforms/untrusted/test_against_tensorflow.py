"""Every op of the table, right and wrong in each way: the validator says what TensorFlow says."""

import contextlib
import random

import pytest

from deploykit.transforms.common.errors import CrashError, GraphError, LoadError
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.node import ENTER_OPS, LOOP_EDGE_OPS, Node
from deploykit.transforms.ir.ops import op_defs
from deploykit.transforms.ir.protos import AttrValue, GraphDef
from deploykit.transforms.ir.tensors import is_type
from deploykit.transforms.runtime.importing import ImportCheck
from deploykit.transforms.untrusted.validate import validate

REF = 100
FIELDS = {"string": "s", "int": "i", "float": "f", "bool": "b", "type": "type", "shape": "shape"}


def smallest(attr):
    """Return the least value that an attribute may have, or None where none is easily made."""
    kind = attr.type.removeprefix("list(").removesuffix(")")
    if kind not in FIELDS:
        return None
    field, allowed = FIELDS[kind], attr.allowed_values.list
    if kind == "type":
        one = next(iter(allowed.type), 1)
    elif kind == "string":
        one = next(iter(allowed.s), b"x")
    elif kind == "int":
        one = max(attr.minimum if attr.has_minimum and attr.type == "int" else 1, 1)
    else:
        one = {"float": 1.0, "bool": True}.get(kind)
    value = AttrValue()
    if attr.type != kind:
        value.list.SetInParent()
        if one is not None:
            getattr(value.list, field).extend([one] * (attr.minimum if attr.has_minimum else 1))
        return value
    if kind == "shape":
        value.shape.unknown_rank = True
    else:
        setattr(value, field, one)
    return value


def given(op_def):
    """Return attributes for a node of an op, or None."""
    attrs = {}
    for attr in op_def.attr:
        value = attr.default_value if attr.HasField("default_value") else smallest(attr)
        if value is None or attr.type in ("tensor", "func", "list(func)"):
            return None
        attrs[attr.name] = AttrValue.FromString(value.SerializeToString())
    return attrs


def types_read(op_def, attrs):
    """Return the type of each input."""
    found = []
    for arg in op_def.input_arg:
        type_ = arg.type or (attrs[arg.type_attr].type if arg.type_attr else 0)
        type_ += REF if arg.is_ref and type_ < REF else 0
        if arg.type_list_attr:
            found += attrs[arg.type_list_attr].list.type
        else:
            found += [type_] * (attrs[arg.number_attr].i if arg.number_attr else 1)
    return found


def graph_of(op_def, attrs, types=None):
    """Return a graph of one node, which reads placeholders and variables."""
    graph = GraphDef()
    names = []
    for place, type_ in enumerate(types if types is not None else types_read(op_def, attrs)):
        op = "Placeholder" if type_ < REF else "VariableV2"
        node = graph.node.add(name=f"in{place}", op=op)
        node.attr["dtype"].type = type_ % REF
        node.attr["shape"].shape.unknown_rank = op == "Placeholder"
        names.append(node.name)
    node = graph.node.add(name="y", op=op_def.name, input=names)
    for name, value in attrs.items():
        node.attr[name].CopyFrom(value)
    return graph


def other(attrs, name, **fields):
    return attrs | {name: AttrValue(**fields)}


def variants(op_def, attrs):
    """Yield graphs with the node as it should be, and wrong in one way each."""
    types = types_read(op_def, attrs)
    yield graph_of(op_def, attrs)
    if len(types) <= 8:
        yield graph_of(op_def, attrs, [*types, 1])
        yield graph_of(op_def, attrs, types[1:])
        for place, type_ in enumerate(types):
            for changed in {7 if type_ % REF != 7 else 1, (type_ + REF) % (2 * REF)} - {20, 21}:
                if is_type(changed % REF) and changed % REF not in (20, 21):
                    yield graph_of(op_def, attrs, [*types[:place], changed, *types[place + 1 :]])
    for attr in op_def.attr:
        if not attr.HasField("default_value"):
            rest = {name: value for name, value in attrs.items() if name != attr.name}
            yield graph_of(op_def, rest, types)
        changes = [{"f": 1.0} if attr.type != "float" else {"i": 1}, {"list": {"f": [1.0]}}]
        if attr.type == "type":
            changes += [{"type": n} for n in (0, 7, 9, 12, 20, 33, 99, 101)]
        elif attr.type == "string":
            changes += [{"s": b"odd"}, {"s": b""}]
        elif attr.type == "int":
            changes += [{"i": n} for n in (-2, -1, 0)]
        elif attr.type == "list(type)":
            changes += [{"list": {"type": [n]}} for n in (0, 7, 99, 101)] + [{"list": {}}]
        elif attr.type == "list(string)":
            changes += [{"list": {"s": [b"odd"]}}, {"list": {}}]
        elif attr.type == "list(int)":
            changes += [{"list": {"i": [1]}}, {"list": {}}, {"list": {"i": [1], "s": [b"x"]}}]
        elif attr.type == "shape":
            changes += [{"shape": {"dim": [{"size": n}]}} for n in (-2, 3)]
        for change in changes:
            changed = other(attrs, attr.name, **change)
            yield graph_of(op_def, changed, types)
            if attr.type in ("type", "int"):
                few = attr.type == "type" or 0 <= changed[attr.name].i < 9
                yield graph_of(op_def, changed, types_read(op_def, changed) if few else types)


def op_letters():
    return sorted({name.lstrip("_")[0] for name in op_defs()})


class ParsedRequest:
    """TensorFlow's importer, which starts anew where it died."""

    def __init__(self):
        self._importer = ImportCheck().__enter__()

    def fault(self, graph):
        """Return why TensorFlow refuses a graph, or an empty string."""
        try:
            self._importer.check(graph.SerializeToString())
        except CrashError as error:
            self.close()
            self.__init__()
            return str(error)
        except LoadError as error:
            return str(error)
        return ""

    def close(self):
        self._importer.__exit__()


@pytest.fixture(scope="module")
def tensorflow():
    with contextlib.closing(ParsedRequest()) as asked:
        yield asked


RULES = "NodeDef", "was passed"  # words of TensorFlow where a node breaks the rules of its op
LEFT_OUT = ENTER_OPS | LOOP_EDGE_OPS  # which cannot stand alone


@pytest.mark.sampled
@pytest.mark.parametrize("letter", op_letters())
def test_of_each_op_wrong_nodes_are_refused_and_right_ones_are_not(tensorflow, letter):
    judged = refused = 0
    for name, op_def in op_defs().items():
        attrs = given(op_def)
        if name.lstrip("_")[0] != letter or attrs is None or name in LEFT_OUT:
            continue
        every = list(variants(op_def, attrs))
        for graph in random.Random(name).sample(every, min(len(every), 25)):
            ours = theirs = ""
            try:
                validate(Graph(map(Node.from_proto, graph.node)))
            except GraphError as error:
                ours = str(error)
            if "can be at most" in ours:
                continue  # TensorFlow would make them all
            theirs = tensorflow.fault(graph)
            if not ours and not any(words in theirs for words in RULES):
                theirs = ""  # a shape function found more, or does not bear such inputs
            if "no tensor has the shape [-2]" in ours:
                theirs = ours  # where no shape function looks, TensorFlow lets it pass
            assert bool(ours) == bool(theirs), (ours, theirs, graph)
            judged, refused = judged + 1, refused + bool(ours)
    assert judged == 0 or 0 < refused < judged
