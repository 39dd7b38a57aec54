"""What bytes ask for is found out before they are decoded."""

import subprocess
import sys

import pytest
from google.protobuf import text_format
from hypothesis import given, settings
from hypothesis import strategies as st

from deploykit.transforms.common.errors import GraphError
from deploykit.transforms.ir.protos import AttrValue, GraphDef, NodeDef, SavedModel, VersionDef
from deploykit.transforms.untrusted.wire import (
    binary_form,
    check_growth,
    decoded,
    field_bytes,
    fields,
    reckoned,
    without_field,
)
from tests.support import raises, says

MANY = 1_500_000


def delimited(number, content):
    """Return a field of a message that holds this."""
    length, header = len(content), bytearray([number << 3 | 2])
    while length > 0x7F:
        header.append(length & 0x7F | 0x80)
        length >>= 7
    return bytes(header) + bytes([length]) + content


def attribute(content):
    """Return a GraphDef of one node, with one attribute whose AttrValue is this."""
    entry = delimited(1, b"a") + delimited(2, content)
    return delimited(1, delimited(1, b"n") + delimited(2, b"NoOp") + delimited(5, entry))


def nested(levels):
    """Return a function within a function as often as that."""
    content = b""
    for _ in range(levels):
        entry = delimited(1, b"a") + delimited(2, content)
        content = delimited(10, delimited(2, entry))
    return attribute(content)


EXPANDING = {
    "nodes": b"\x0a\x00" * MANY,
    "functions": delimited(2, b"\x0a\x00" * MANY),
    "nodes of a function": delimited(2, delimited(1, b"\x1a\x00" * MANY)),
    "gradients": delimited(2, b"\x12\x00" * MANY),
    "tensors": attribute(delimited(1, b"\x42\x00" * MANY)),
    "shapes": attribute(delimited(1, b"\x3a\x00" * MANY)),
    "dimensions": attribute(delimited(7, b"\x12\x00" * MANY)),
    "functions in a list": attribute(delimited(1, b"\x4a\x00" * MANY)),
    "variants": attribute(delimited(8, b"\x7a\x00" * MANY)),
    "attributes": delimited(1, b"\x2a\x00" * MANY),
    "texts": attribute(delimited(1, b"\x12\x00" * 3 * MANY)),
}


@pytest.mark.sampled
@pytest.mark.parametrize("kind", ["nodes", "nodes of a function", "tensors"])
def test_empty_parts_without_number_are_refused(kind):
    with raises(GraphError, "message-too-large"):
        check_growth(EXPANDING[kind], GraphDef)
    check_growth(EXPANDING[kind][:0] + b"\x0a\x00" * 100_000, GraphDef)  # a few do no harm


MEASURE = """
import os, sys
from deploykit.transforms.ir.protos import GraphDef
def held():
    return int(open('/proc/self/statm').read().split()[1]) * 4096
for path in sys.argv[1:]:
    if not os.fork():
        content = open(path, 'rb').read()
        before = held()
        graph = GraphDef.FromString(content)
        print(held() - before, flush=True)
        os._exit(0)
    os.wait()
"""


@pytest.mark.sampled
def test_what_is_read_takes_no_more_than_was_reckoned(tmp_path):
    """Each is decoded in a process of its own, whose memory is measured."""
    for kind, content in EXPANDING.items():
        (tmp_path / kind).write_bytes(content)
    command = [sys.executable, "-c", MEASURE, *(str(tmp_path / kind) for kind in EXPANDING)]
    done = subprocess.run(command, capture_output=True, check=True)
    for kind, taken in zip(EXPANDING, done.stdout.split(), strict=True):
        assert int(taken) <= reckoned(EXPANDING[kind], GraphDef, 1 << 40) + (8 << 20), kind


@pytest.mark.sampled
def test_nesting_is_bounded_and_takes_no_stack():
    check_growth(nested(20), GraphDef)
    GraphDef.FromString(nested(20))
    with raises(GraphError, "nested-too-deep", most=100):
        check_growth(nested(40), GraphDef)
    with raises(GraphError, "nested-too-deep", most=100):
        check_growth(nested(20_000), GraphDef)


@pytest.mark.parametrize(
    "content",
    [b"\x0a", b"\x0a\x05abc", b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", b"\x0b\x0c", b"\x80",
     b"\x08", b"\x09abc", b"\x0f", b"\x0a\x02\x0a\x05", b"\xff" * 11],
)  # fmt: skip
def test_damage_is_named(content):
    with raises(GraphError, "damaged-at"):
        check_growth(content, GraphDef)


@settings(max_examples=300)
@given(st.binary(max_size=200))
def test_any_bytes_are_looked_through_or_refused(content):
    """Whatever protobuf decodes, and no group, is no damage."""
    try:
        check_growth(content, GraphDef)
    except GraphError:
        return
    for number in (1, 2, 3, 4):
        assert sum(end - start for start, _, end in fields(content, number)) <= len(content)


NODES = st.builds(
    lambda name, inputs, ints: NodeDef(
        name=name, op="NoOp", input=inputs, attr={"a": AttrValue(list={"i": ints})}
    ),
    st.text("abc/", max_size=300),
    st.lists(st.text("xyz", max_size=3), max_size=4),
    st.lists(st.integers(-9, 1 << 40), max_size=4),
)


@settings(max_examples=100)
@given(st.lists(NODES, max_size=5), st.integers(0, 9))
def test_the_parts_of_a_message_are_found(nodes, producer):
    graph = GraphDef(node=nodes, versions={"producer": producer})
    content = graph.SerializeToString()
    check_growth(content, GraphDef)
    found = [NodeDef.FromString(content[begin:end]) for _, begin, end in fields(content, 1)]
    assert found == nodes
    assert GraphDef.FromString(without_field(content, 1)) == GraphDef(versions=graph.versions)
    assert field_bytes(content, 4) == graph.versions.SerializeToString()
    assert (
        GraphDef.FromString(binary_form(text_format.MessageToString(graph).encode(), GraphDef))
        == graph
    )


def test_a_message_that_stands_twice_is_joined_as_protobuf_does():
    one, two = (GraphDef(versions={"bad_consumers": [n]}).SerializeToString() for n in (1, 2))
    joined = VersionDef.FromString(field_bytes(one + two, 4))
    assert joined == GraphDef.FromString(one + two).versions


def test_a_text_that_is_no_text_is_damage():
    content = delimited(1, delimited(1, b"\xff"))
    check_growth(content, GraphDef)
    with raises(GraphError, "message-part-damaged", name="GraphDef"):
        decoded(content, GraphDef)


TEXTS = {
    "nested": (b"node{" + b"attr{value{func{" * 100_000, says("nested-too-deep", most=100)),
    "parts": (b"node{}" * 1_500_000, says("message-too-many-parts")),
    "no end": (b'node{name:"' + b"a" * 1_000_000, says("text-not-ended", position=10)),
    "quotes": (b'"\\' * 500_000, says("text-not-ended", position=0)),
    "no field": (b"nodes{}", "not a GraphDef in text form: 1:1 : .*no field named"),
    "a number": (b"node{attr{value{i:" + b"9" * 100_000 + b"}}}", "not a GraphDef in text form"),
    "no text": (b"node{name:'\xff'}", "not a GraphDef in text form"),
}


@pytest.mark.parametrize(("text", "message"), TEXTS.values(), ids=TEXTS)
def test_bad_texts(text, message):
    with pytest.raises(GraphError, match=message) as raised:
        binary_form(text, GraphDef)
    assert len(str(raised.value)) < 400


@pytest.mark.sampled
def test_long_texts_with_all_kinds_of_characters_are_read():
    content = bytes(range(256)) * 5000 + b"'\"\\{}<>#\n" * 3000
    node = NodeDef(name="n", attr={"a": AttrValue(s=content)})
    text = text_format.MessageToString(node).encode()
    assert NodeDef.FromString(binary_form(text, NodeDef)) == node
    assert binary_form(b"# } { \"\nname: 'a' # {{\n", NodeDef) == b"\x0a\x01a"


@pytest.mark.sampled
def test_a_saved_model_is_looked_through_at_any_depth():
    objects = delimited(7, delimited(1, b"\x0a\x00" * 8 * MANY))
    with raises(GraphError, "message-too-large"):
        check_growth(delimited(2, objects), SavedModel)
