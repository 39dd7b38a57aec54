"""Protobuf's text form, as `.pbtxt` files have it, turned into bytes with suspicion."""

import re

from google.protobuf import text_format
from google.protobuf.message import Message

from deploykit.transforms.core.checks.wire import FREE_BYTES, MAX_DEPTH, MAX_GROWTH
from deploykit.transforms.core.errors import GraphError

_MESSAGE_BYTES = 200  # what an empty part may take when it is read
_PIECE = 4096  # characters of a text that protobuf's parser is given at once: it takes 100 for each

_TOKENS = re.compile(  # comments and texts, which may hold any braces, and where parts begin or end
    rb"""\#[^\n]*+|(["'])(?:(?!\1)[^\\\n]|\\.)*+(\1?)|([{<])|([}>])"""
)
_CHARACTERS = re.compile(
    rb"(?:[^\\]|\\[0-7]{1,3}|\\[xX][0-9a-fA-F]{1,2}|\\u.{4}|\\U.{8}|\\.){1,%d}" % _PIECE
)


def binary_form(text: bytes, kind: type[Message]) -> bytes:
    """Return a message in text form as bytes.

    GraphError: it is no such message, is nested too deep, or would be huge when it is read.
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
    """Return a message whose parts are not too many, with its long texts in pieces."""
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
