"""Types of option values, with one-sentence errors for invalid values."""

import math
import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import click

from deploykit.cli import completion
from deploykit.cli.failures import option_error
from deploykit.transforms.common.flag import is_range
from deploykit.transforms.engines.engines import MAX_THREADS

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    _ParamType = click.ParamType[Any]
else:
    _ParamType = click.ParamType

_MOST = 1e9
_SWITCH = {"on": (True,), "off": (False,), "both": (False, True)}


class ExpectedError(ValueError):
    """An error that states the expected form of a value."""

    def __init__(self, expected: str, got: str | None = None) -> None:
        """Store the expected form as text, and the invalid part of the value; None: all of it."""
        super().__init__(expected)
        self.expected, self.got = expected, got


class Value(_ParamType):
    """A value type with its name as metavar; click would change the name to upper case."""

    def __init__(
        self,
        name: str,
        parse: Callable[[Any], Any],
        words: Sequence[str] = (),
        is_list: bool = False,
    ) -> None:
        """Store the parser, which raises ExpectedError, and the words for shell completion.

        With `is_list`, a value may be several words separated by commas.
        """
        self.name, self._parse = name, parse
        self.words, self.is_list = words, is_list

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the parsed value; a tuple is returned unchanged."""
        if isinstance(value, tuple):
            return value
        try:
            return self._parse(value)
        except ExpectedError as error:
            got = value if error.got is None else error.got
            raise option_error(param, ctx, got, error.expected) from None

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> "list[CompletionItem]":
        """Return the matching words."""
        return completion.words(self.words, incomplete, self.is_list)

    def get_metavar(self, param: click.Parameter, ctx: click.Context | None = None) -> str:
        """Return the metavar for help."""
        return self.name


class _Path(_ParamType):
    """A path; its metavar is `shown`, or the name of the argument."""

    name = "path"

    def __init__(self, shown: str | None = None) -> None:
        self._shown = shown

    def get_metavar(self, param: click.Parameter, ctx: click.Context | None = None) -> str | None:
        return self._shown

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the path."""
        if value == "" and (param is None or param.default != ""):
            raise option_error(param, ctx, value, "the name of a file or folder, not an empty path")
        return str(value)

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> "list[CompletionItem]":
        return completion.files(incomplete)


class PathName(_Path):
    """A path of an input, or of an output that is not text; `-` is refused, `./-` is a file."""

    def __init__(
        self, shown: str | None = None, named: bool = False, in_home: bool = False
    ) -> None:
        """With `named`, the path may follow a name, as in `x=data.npy`.

        With `in_home`, `~` is replaced by the user's home folder, even if the shell did not.
        """
        super().__init__(shown)
        self._ends = ("=-",) if named else ()
        self._in_home = in_home

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the path."""
        if value == "-" or value.endswith(self._ends):
            raise option_error(
                param, ctx, value, "a path; - is not standard input here (./- is the file -)"
            )
        path = super().convert(value, param, ctx)
        return os.path.expanduser(path) if self._in_home else path


class TextOutput(_Path):
    """A text file to write; `-` is standard output."""

    def __init__(self, shown: str, is_report: bool = False) -> None:
        """With `is_report`, the text is the JSON document that --json prints."""
        super().__init__(shown)
        self.is_report = is_report


class TrueOrFalse(click.types.BoolParamType):
    """`true` or `false`."""

    def get_metavar(self, param: click.Parameter, ctx: click.Context | None = None) -> str:
        """Return the metavar for help."""
        return "BOOL"


def whole(least: int, most: int = int(_MOST)) -> Value:
    """Return the type of an integer within bounds."""

    def parse(value: Any) -> int:
        try:
            result = _int(value)
        except ValueError:
            result = least - 1
        if not least <= result <= most:
            raise ExpectedError(f"a whole number from {least} to {most}")
        return result

    return Value("N", parse)


def number(least: float = -_MOST, most: float = _MOST, above: float | None = None) -> Value:
    """Return the type of a number within bounds, by default up to 1e9, which timers accept."""

    def parse(value: Any) -> float:
        try:
            result = _float(value)
        except ValueError:
            result = math.nan
        is_low = result <= above if above is not None else result < least
        if is_low or not result <= most:  # NaN is never
            bounds = f"from {least:g} to" if above is None else f"above {above:g}, up to"
            raise ExpectedError(f"a number {bounds} {most:g}")
        return result

    return Value("X", parse)


def percent(least: float, most: float) -> Value:
    """Return the type of a share: `5%`, or 0.05; `off` is None.

    A number from 1 on must have a percent sign, as 5 could mean 5 % or 500 %.
    """

    def parse(text: str) -> float | None:
        if text == "off":
            return None
        is_percent = text.endswith("%")
        try:
            result = _float(text.removesuffix("%").rstrip()) / (100 if is_percent else 1)
        except ValueError:
            result = math.nan
        if not (least <= result <= most and (is_percent or result < 1)):
            bounds = f"from {100 * least:g}% to {100 * most:g}%"
            raise ExpectedError(f"a percentage {bounds} such as 5%, a share such as 0.05, or off")
        return result

    return Value("PERCENT", parse, ("off",))


def counts(most: int) -> Value:
    """Return the type of a list of positive integers, such as `1,8,32`, without duplicates."""

    def parse(text: str) -> tuple[int, ...]:
        try:
            results = tuple(dict.fromkeys(map(_int, text.split(","))))
        except ValueError:
            raise ExpectedError("whole numbers such as 1,8,32") from None
        if min(results) < 1 or max(results) > most:
            raise ExpectedError(f"whole numbers from 1 to {most}")
        return results

    return Value("N,...", parse)


def span(least: int, most: int) -> Value:
    """Return the type of an integer range, `1..1000`; a single number is both ends."""

    def parse(text: str) -> tuple[int, int]:
        first, dots, second = text.partition("..")
        try:
            low, high = _int(first), _int(second if dots else first)
        except ValueError:
            raise ExpectedError("two whole numbers such as 1..10") from None
        if not least <= low <= high <= most:
            raise ExpectedError(f"two numbers from {least} to {most}, the smaller one first")
        return low, high

    return Value("N..N", parse)


def setting(name: str, metavar: str, expected: str, words: Sequence[str]) -> Value:
    """Return the type of a text setting of `RunConfig`, with the same pattern as in JSON files."""

    def parse(text: str) -> str:
        from deploykit.benchmarking.run_config import can_be_text  # not needed by --help

        if not can_be_text(name, text):
            raise ExpectedError(expected)
        return text

    return Value(metavar, parse, words)


def one_or_more(known: Sequence[str], every: str = "") -> Value:
    """Return the type of a list of known words, separated by commas, without duplicates.

    The word `every` stands for all of them. If it is set, spaces and empty words are ignored.
    """
    words = (*known, every) if every else tuple(known)

    def parse(text: str) -> tuple[str, ...]:
        result = names(text) if every else text.split(",")
        for word in result:
            if word not in words:
                raise ExpectedError(f"one of {', '.join(words)}", word)
        return tuple(known) if every and every in result else tuple(dict.fromkeys(result))

    return Value("KINDS" if every else "NAME,...", parse, words, is_list=True)


def names(text: str) -> tuple[str, ...]:
    """Return tensor names separated by commas."""
    return tuple(name.strip() for name in text.split(",") if name.strip())


def tags(text: str) -> tuple[str, ...]:
    """Return the tags of a graph, separated by commas; an empty text is the graph without tags."""
    return names(text) or ("",)


def float_range(text: str) -> tuple[float, float]:
    """Return the two numbers of `LO,HI`."""
    try:
        low, high = map(_float, text.split(","))
        is_valid = is_range(low, high)
    except ValueError:
        is_valid = False
    if not is_valid:
        raise ExpectedError("two finite float32 numbers LO,HI with LO < HI")
    return low, high


def threads(text: str) -> tuple[tuple[int, int], ...]:
    """Return pairs of intra-op and inter-op threads from `2x1,1x2`; `2` is `2x1`."""
    results = []
    for pair in text.split(","):
        intra, cross, inter = pair.partition("x")
        inter = inter if cross else "1"
        is_number = pair.isascii() and intra.isdecimal() and inter.isdecimal()
        if not (is_number and int(intra) and int(inter)):
            raise ExpectedError(
                "threads above zero such as 2, or 2x1 for 2 intra-op and 1 inter-op", pair
            )
        if max(int(intra), int(inter)) > MAX_THREADS:
            raise ExpectedError(f"at most {MAX_THREADS} threads", pair)
        results.append((int(intra), int(inter)))
    return tuple(dict.fromkeys(results))


def thread_pair(text: str) -> tuple[int, int]:
    """Return the intra-op and inter-op thread counts from `2x1`."""
    pairs = threads(text)
    if len(pairs) != 1:
        raise ExpectedError("one pair here, such as 2x1")
    return pairs[0]


def switch(text: str) -> tuple[bool, ...]:
    """Return the values of `on`, `off` or `both` as booleans."""
    if text not in _SWITCH:
        raise ExpectedError("one of on, off, both")
    return _SWITCH[text]


def pin(text: str) -> tuple[str, str]:
    """Return name and value from `NAME=VALUE`."""
    name, equals, pinned = text.partition("=")
    if not (name and equals):
        raise ExpectedError("NAME=VALUE")
    return name.removesuffix(":0"), pinned


def variable(text: str) -> tuple[str, str | None]:
    """Return name and value of an environment variable from `NAME=VALUE`; `NAME=` unsets it."""
    name, equals, value = text.partition("=")
    if not (name and equals):
        raise ExpectedError("NAME=VALUE, such as KMP_BLOCKTIME=1, or NAME= to unset it")
    return name, value or None


def column(text: str) -> tuple[str, str]:
    """Return input and column name from `INPUT=COLUMN`."""
    name, _, chosen = text.partition("=")
    if not (name and chosen):
        raise ExpectedError("INPUT=COLUMN, such as text=review")
    return name, chosen


def alias(text: str) -> tuple[str, str]:
    """Return alias and tensor name from `ALIAS=TENSOR`."""
    given, _, tensor = text.partition("=")
    if not (given and tensor):
        raise ExpectedError("ALIAS=TENSOR, such as images=x")
    return given, tensor


def shape(text: str) -> tuple[str, tuple[int, ...]]:
    """Return input name and shape from `NAME=1,224,224,3`; `NAME=` is a scalar."""
    name, equals, listed = text.partition("=")
    try:
        sizes = tuple(map(_int, listed.split(","))) if listed.strip() else ()
    except ValueError:
        equals = ""
    if not (name and equals):
        raise ExpectedError("a shape such as x=1,224,224,3")
    if min(sizes, default=1) < 1:
        raise ExpectedError("a shape of sizes above zero")
    return name.removesuffix(":0"), sizes


def _ascii(text: Any) -> Any:
    """Return the text for int() and float(). ValueError: it is not ASCII, or contains _."""
    if isinstance(text, str) and ("_" in text or not text.isascii()):
        raise ValueError
    return text


def _int(text: Any) -> int:
    return int(_ascii(text))


def _float(text: Any) -> float:
    return float(_ascii(text))
