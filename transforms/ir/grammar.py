"""The transform string `name(parameter=value, ...) name ...` of the Graph Transform Tool.

    string    := (transform [ "(" [parameter ([","] parameter)*] ")" ])*
    transform := name | name ("." name)* ":" name
    parameter := name "=" value
    value     := "..." | '...' | characters out of A-Z a-z 0-9 . _ / : * ? ^ + -

Extensions of the original: `package.module:function` is a custom transform. Blanks, newlines, a
backslash at the end of a line and `# comments` may be between any two parts. Values may contain a
colon, and an unclosed parenthesis is an error. As in the original, a backslash inside quotes
keeps the next character from ending them and is not removed.
"""

import re
from dataclasses import dataclass

from deploykit.transforms.common.errors import PipelineError

_BLANK = re.compile(r"(?:\s|\\(?=\s|$)|#[^\n]*)*")
_NAME = re.compile(r"[A-Za-z0-9_]+")
_TRANSFORM = re.compile(r"[A-Za-z0-9_]+(?:(?:\.\w+)*:\w+)?")
_VALUE = re.compile(r"[A-Za-z0-9._/:*?^+-]+")
_QUOTED = re.compile(r'"((?:[^"\\]|\\.)*)"|\'((?:[^\'\\]|\\.)*)\'', re.DOTALL)


@dataclass(frozen=True)
class Parameter:
    """One `name=value` and its position in the string."""

    name: str
    value: str
    position: int


@dataclass(frozen=True)
class Call:
    """One transform with its parameters and its position in the string."""

    name: str
    parameters: tuple[Parameter, ...]
    position: int


class _Scanner:
    """The string and the current position."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.position = 0

    def skip_blanks(self) -> None:
        match = _BLANK.match(self.text, self.position)
        assert match is not None
        self.position = match.end()

    def at(self, character: str) -> bool:
        return self.text.startswith(character, self.position)

    def take(self, pattern: re.Pattern[str], expected: str) -> re.Match[str]:
        match = pattern.match(self.text, self.position)
        if match is None:
            raise self.error(expected)
        self.position = match.end()
        self.skip_blanks()
        return match

    def error(self, expected: str) -> PipelineError:
        text, position = self.text, self.position
        if position == len(text):
            return PipelineError("syntax-ends", text, position, expected=expected)
        return PipelineError(
            "syntax-unexpected", text, position, expected=expected, found=text[position]
        )


def parse(text: str) -> list[Call]:
    """Return the calls of a transform string. PipelineError: a caret marks the position."""
    reader = _Scanner(text)
    reader.skip_blanks()
    calls = []
    while reader.position < len(text):
        position = reader.position
        name = reader.take(_TRANSFORM, "the name of a transform").group()
        parameters = _parameters(reader) if reader.at("(") else ()
        calls.append(Call(name, parameters, position))
    return calls


def _parameters(reader: _Scanner) -> tuple[Parameter, ...]:
    opened = reader.position
    reader.position += 1
    reader.skip_blanks()
    parameters: list[Parameter] = []
    while not reader.at(")"):
        if reader.position == len(reader.text):
            raise PipelineError("parenthesis-open", text=reader.text, position=opened)
        parameters.append(_parameter(reader))
        if reader.at(","):
            reader.position += 1
            reader.skip_blanks()
            if reader.at(")"):
                raise reader.error("the name of a parameter after the comma")
    reader.position += 1
    reader.skip_blanks()
    return tuple(parameters)


def _parameter(reader: _Scanner) -> Parameter:
    position = reader.position
    name = reader.take(_NAME, "the name of a parameter").group()
    if not reader.at("="):
        raise reader.error(f"= after {name}")
    reader.position += 1
    reader.skip_blanks()
    if reader.at('"') or reader.at("'"):
        start = reader.position
        match = _QUOTED.match(reader.text, start)
        if match is None:
            raise PipelineError("quote-open", text=reader.text, position=start)
        reader.position = match.end()
        reader.skip_blanks()
        return Parameter(name, match.group(1) or match.group(2) or "", position)
    return Parameter(name, reader.take(_VALUE, f"a value for {name}").group(), position)
