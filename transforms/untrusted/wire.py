"""Checks of protobuf messages, in binary and text form, before protobuf decodes them."""

import functools
import mmap
import re
import sys
from collections.abc import Iterator
from typing import Any, TypeVar

from google.protobuf import text_format
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import DecodeError, Message

from deploykit.transforms.common.errors import GraphError

Bytes = bytes | mmap.mmap
Kind = TypeVar("Kind", bound=Message)

MAX_DEPTH = 100  # protobuf's limit
MAX_GROWTH = 16  # memory of a decoded file relative to its size; real files take 4 to 9 times
FREE_BYTES = 64 << 20  # memory that any file may take

_BYTES = 2
_WIDTHS = {0: 0, 1: 8, 5: 4}  # by wire type; a varint encodes its length
_FIXED = {
    FieldDescriptor.TYPE_DOUBLE: 8,
    FieldDescriptor.TYPE_FIXED64: 8,
    FieldDescriptor.TYPE_SFIXED64: 8,
    FieldDescriptor.TYPE_FLOAT: 4,
    FieldDescriptor.TYPE_FIXED32: 4,
    FieldDescriptor.TYPE_SFIXED32: 4,
}
_PLACE = 16  # bytes of an element in a list that grows by doubling
_TEXT = (FieldDescriptor.TYPE_STRING, FieldDescriptor.TYPE_BYTES)
_LONG = (FieldDescriptor.TYPE_INT64, FieldDescriptor.TYPE_UINT64, FieldDescriptor.TYPE_SINT64)

# For each tag: the plan of its message, bytes per element, and bytes per byte of content.
Plan = dict[int, tuple["Plan | None", int, int]]


def fields(
    content: Bytes, expected: int, most: int = sys.maxsize
) -> Iterator[tuple[int, int, int]]:
    """Yield the start, content start and end of each message or string in a field.

    The start is that of the tag. GraphError: the bytes are damaged, or there are more than `most`
    fields of any kind.
    """
    place, stop, wanted_tag, count = 0, len(content), expected << 3 | _BYTES, 0
    while place < stop:
        start = place
        count += 1
        if count > most:
            raise GraphError("fields-too-many", most=most)
        tag = content[place]
        place += 1
        if tag > 0x7F:
            tag, place = _varint(content, start, stop)
        if tag & 7 == _BYTES:
            if place < stop and content[place] < 0x80:
                begin = place + 1
                place = begin + content[place]
            else:
                length, begin = _varint(content, place, stop)
                place = begin + length
        else:
            begin = place = _after(content, place, tag & 7)
        if place > stop:
            raise _damaged(start)
        if tag == wanted_tag:
            yield start, begin, place


def field_bytes(content: Bytes, expected: int) -> bytes:
    """Return a message in a field of another one; protobuf merges repeated occurrences."""
    results = [content[begin:end] for _, begin, end in fields(content, expected)]
    return results[0] if len(results) == 1 else b"".join(results)


def without_field(content: bytes, unwanted: int) -> bytes:
    """Return a message without one of its fields."""
    retained, place = [], 0
    for start, _, end in fields(content, unwanted):
        retained.append(content[place:start])
        place = end
    return b"".join([*retained, content[place:]])


def decoded(content: bytes, kind: type[Kind]) -> Kind:
    """Return a decoded message. GraphError: its bytes are damaged, such as an invalid string."""
    try:
        message: Kind = kind.FromString(content)
    except DecodeError:
        raise GraphError("message-part-damaged", name=kind.DESCRIPTOR.name) from None
    return message


def check_growth(content: Bytes, kind: type[Message], most: int = sys.maxsize) -> None:
    """Raise GraphError for a message that is damaged, nested too deep, or too large to decode.

    It is also raised for more than `most` fields, as each takes a third of a microsecond to check.
    """
    allowed = MAX_GROWTH * len(content) + FREE_BYTES
    if reckoned(content, kind, allowed, most) > allowed:
        raise GraphError("message-too-large", size=len(content), most=allowed >> 20)


def reckoned(content: Bytes, kind: type[Message], allowed: int, most: int = sys.maxsize) -> int:
    """Return an upper bound of a decoded message's bytes; above `allowed`, any larger number.

    GraphError: it is damaged, nested too deep, or has more than `most` fields.
    """
    try:
        return _taken(content, _plan(kind.DESCRIPTOR), allowed, most)
    except IndexError:
        raise _damaged(len(content)) from None


def _taken(content: Bytes, plan: Plan, allowed: int, most: int) -> int:
    place, stop, used, left = 0, len(content), 0, most
    outer: list[tuple[int, Plan]] = []
    while used <= allowed:
        if place == stop:
            if not outer:
                break
            stop, plan = outer.pop()
            continue
        left -= 1
        if left < 0:
            raise GraphError("fields-too-many", most=most)
        tag = content[place]
        place += 1
        if tag > 0x7F:
            tag, place = _varint(content, place - 1, stop)
        if tag & 7 == _BYTES:
            length = content[place]
            place += 1
            if length > 0x7F:
                length, place = _varint(content, place - 1, stop)
            if place + length > stop or tag < 8:
                raise _damaged(place)
            inner, whole, item = plan.get(tag, (None, 0, 1))
            used += whole + item * length
            if inner is None:
                place += length
            else:
                if len(outer) == MAX_DEPTH:
                    raise GraphError("nested-too-deep", most=MAX_DEPTH)
                outer.append((stop, plan))
                stop, plan = place + length, inner
        else:
            is_short = tag & 7 == 0 and content[place] < 0x80  # a one-byte number
            place = place + 1 if is_short else _after(content, place, tag & 7)
            if place > stop or tag < 8:  # field numbers start at 1
                raise _damaged(place)
            used += plan[tag][1] if tag in plan else 4
    return used


def _after(content: Bytes, place: int, wire_type: int) -> int:
    """Return the end of a field whose wire type determines its length."""
    if wire_type == 0:
        return _varint(content, place, len(content))[1]
    if wire_type not in _WIDTHS:
        raise _damaged(place)
    return place + _WIDTHS[wire_type]


def _varint(content: Bytes, place: int, stop: int) -> tuple[int, int]:
    """Return a varint, and the position after it."""
    value = 0
    for shift in range(0, 70, 7):
        if place >= stop:
            break
        byte = content[place]
        place += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, place
    raise _damaged(place)


def _damaged(place: int) -> GraphError:
    return GraphError("damaged-at", position=place)


@functools.cache
def _plan(root: Descriptor) -> Plan:
    plans: dict[str, Plan] = {}
    waiting = [root]
    plans[root.full_name] = {}
    while waiting:
        message = waiting.pop()
        for field in message.fields:
            inner = field.message_type
            if inner is not None and inner.full_name not in plans:
                plans[inner.full_name] = {}
                waiting.append(inner)
            plan = plans[message.full_name]
            plan[field.number << 3 | _BYTES] = (
                None if inner is None else plans[inner.full_name],
                _size(field),
                _growth(field),
            )
            for wire_type in _WIDTHS:
                plan[field.number << 3 | wire_type] = (None, 8 if _is_repeated(field) else 0, 0)
    return plans[root.full_name]


def _size(field: FieldDescriptor) -> int:
    """Return roughly the memory of an element of a field in protobuf."""
    message: Any = field.message_type
    if message is None:
        return 32 + _PLACE if field.type in _TEXT and _is_repeated(field) else 0
    if field.containing_type.GetOptions().map_entry:
        return 0
    if message.GetOptions().map_entry:  # the message of a value exists even where it is missing
        value = message.fields_by_name["value"].message_type
        return 64 + (_empty(value) if value else 0)
    return _empty(message) + (_PLACE if _is_repeated(field) else 0)


def _empty(message: Descriptor) -> int:
    """Return roughly the memory of a message without values."""
    texts = sum(field_.type in _TEXT and not _is_repeated(field_) for field_ in message.fields)
    return 24 + 8 * (len(message.fields) + texts)


def _growth(field: FieldDescriptor) -> int:
    """Return the memory for each byte of a field: a packed varint may become an 8-byte number."""
    if field.message_type is not None:
        return 0
    if field.type in _TEXT or field.type in _FIXED or field.type == FieldDescriptor.TYPE_BOOL:
        return 1
    return 8 if field.type in _LONG else 4


def _is_repeated(field: FieldDescriptor) -> bool:
    """Return whether a field is a list. Protobuf 5 has no `is_repeated`, protobuf 8 no `label`."""
    result = getattr(field, "is_repeated", None)
    return bool(field.label == FieldDescriptor.LABEL_REPEATED if result is None else result)


_MESSAGE_BYTES = 200  # memory that an empty message may take
_PIECE = 4096  # characters of a string in one token: protobuf's parser takes 100 bytes for each

_TOKENS = re.compile(  # comments, strings, which may contain braces, and braces of messages
    rb"""\#[^\n]*+|(["'])(?:(?!\1)[^\\\n]|\\.)*+(\1?)|([{<])|([}>])"""
)
_CHARACTERS = re.compile(
    rb"(?:[^\\]|\\[0-7]{1,3}|\\[xX][0-9a-fA-F]{1,2}|\\u.{4}|\\U.{8}|\\.){1,%d}" % _PIECE
)


def binary_form(text: bytes, kind: type[Message]) -> bytes:
    """Convert a message from text form to binary form.

    GraphError: it is not such a message, nested too deep, or too large to decode.
    """
    name = kind.DESCRIPTOR.name
    try:
        plain = _checked(text).decode()
        content: bytes = text_format.Parse(plain, kind()).SerializeToString()
    except (UnicodeDecodeError, text_format.ParseError) as error:
        reason = str(error)[:200]
        raise GraphError("not-a", what=f"a {name} in text form", reason=reason) from None
    return content


def _checked(text: bytes) -> bytes:
    """Return a message whose number of parts is limited, with its long strings split."""
    parts = depth = 0
    allowed = (MAX_GROWTH * len(text) + FREE_BYTES) // _MESSAGE_BYTES
    result, done = [], 0
    for token in _TOKENS.finditer(text):
        quote, end, opening, closing = token.groups()
        if opening:
            parts, depth = parts + 1, depth + 1
            if parts > allowed:
                raise GraphError("message-too-many-parts", most=allowed)
            if depth > MAX_DEPTH:
                raise GraphError("nested-too-deep", most=MAX_DEPTH)
        elif closing:
            depth -= 1
        elif quote and not end:
            raise GraphError("text-not-ended", position=token.start())
        elif quote and token.end() - token.start() > _PIECE:
            pieces = _CHARACTERS.findall(text, token.start() + 1, token.end() - 1)
            result += [text[done : token.start()], quote, (quote + quote).join(pieces), quote]
            done = token.end()
    return b"".join([*result, text[done:]])
