"""What the value of an option may be; what is wrong is said in one sentence."""

import math
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import click

from deploykit.cli import completion
from deploykit.cli.failures import option_error
from deploykit.transforms.core.display.flag import is_range
from deploykit.transforms.core.engines.engines import MOST_THREADS

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    _ParamType = click.ParamType[Any]
else:
    _ParamType = click.ParamType

_MOST = 1e9


def _ascii(text: Any) -> Any:
    """Return what int() and float() parse. ValueError: digits that are not ASCII, or with _."""
    if isinstance(text, str) and ("_" in text or not text.isascii()):
        raise ValueError
    return text


def _int(text: Any) -> int:
    return int(_ascii(text))


def _float(text: Any) -> float:
    return float(_ascii(text))


class _Written(_ParamType):
    """A value that is written as its name says; click would show that in capitals."""

    words: Sequence[str] = ()
    """What a shell completes."""
    is_list = False
    """Whether it may be several words with commas between them."""

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> "list[CompletionItem]":
        return completion.words(self.words, incomplete, self.is_list)

    def get_metavar(self, param: click.Parameter, ctx: click.Context | None = None) -> str:
        return self.name


class _Path(_ParamType):
    """A path; help shows `shown` for it, or the name of the argument."""

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
    """A path to read, or of a folder, graph or picture to write; `-` is not one, but `./-` is."""

    def __init__(self, shown: str | None = None, named: bool = False) -> None:
        """With `named`, the path may follow a name: `x=data.npy`."""
        super().__init__(shown)
        self._ends = ("=-",) if named else ()

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the path."""
        if value == "-" or value.endswith(self._ends):
            raise option_error(
                param, ctx, value, "a path, for - is no stream here (./- is the file -)"
            )
        return super().convert(value, param, ctx)


class TextOutput(_Path):
    """A file of text to write; `-` is standard output."""

    def __init__(self, shown: str, is_report: bool = False) -> None:
        """With `is_report`, the text is the document that --json prints."""
        super().__init__(shown)
        self.is_report = is_report


class Names(_Written):
    """Tensor names separated by commas; `name` and `name:0` are alike."""

    name = "NAMES"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, ...]:
        """Return the names as a tuple."""
        if isinstance(value, tuple):
            return value
        return tuple(name.strip() for name in value.split(",") if name.strip())


class Tags(Names):
    """Tags of a graph separated by commas; an empty text names the graph without tags."""

    name = "TAGS"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, ...]:
        """Return the tags as a tuple, with an empty one where there is none."""
        return super().convert(value, param, ctx) or (() if isinstance(value, tuple) else ("",))


class Range(_Written):
    """Two numbers, `LO,HI`."""

    name = "LO,HI"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[float, float]:
        """Return the two numbers."""
        if isinstance(value, tuple):
            return value
        try:
            low, high = map(_float, value.split(","))
            is_valid = is_range(low, high)
        except ValueError:
            is_valid = False
        if not is_valid:
            expected = "two finite float32 numbers LO,HI with LO < HI"
            raise option_error(param, ctx, value, expected)
        return low, high


class Counts(_Written):
    """Whole numbers above zero, `1,8,32`."""

    name = "N,..."

    def __init__(self, most: int) -> None:
        self._most = most

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, ...]:
        """Return the numbers, each once."""
        if isinstance(value, tuple):
            return value
        try:
            found = tuple(dict.fromkeys(map(_int, value.split(","))))
        except ValueError:
            raise option_error(param, ctx, value, "whole numbers such as 1,8,32") from None
        if min(found) < 1 or max(found) > self._most:
            raise option_error(param, ctx, value, f"whole numbers from 1 to {self._most}")
        return found


class Whole(_Written):
    """A whole number within bounds; unlike click, help does not write them as `1<=x<=64`."""

    name = "N"

    def __init__(self, least: int, most: int = int(_MOST)) -> None:
        self._least, self._most = least, most

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return the number."""
        try:
            found = _int(value)
        except ValueError:
            found = self._least - 1
        if not self._least <= found <= self._most:
            expected = f"a whole number from {self._least} to {self._most}"
            raise option_error(param, ctx, value, expected)
        return found


class Finite(_Written):
    """A number within bounds, and not so large that a clock cannot count to it."""

    name = "X"

    def __init__(
        self, least: float = -_MOST, most: float = _MOST, above: float | None = None
    ) -> None:
        self._least, self._most, self._above = least, most, above

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Return the number."""
        try:
            found = _float(value)
        except ValueError:
            found = math.nan
        is_low = found <= self._above if self._above is not None else found < self._least
        if is_low or not found <= self._most:  # NaN is never
            bounds = f"from {self._least:g} to"
            if self._above is not None:
                bounds = f"above {self._above:g}, up to"
            raise option_error(param, ctx, value, f"a number {bounds} {self._most:g}")
        return found


class Span(_Written):
    """From one whole number to another one, `1..1000`; a single number is both."""

    name = "N..N"

    def __init__(self, least: int, most: int) -> None:
        self._least, self._most = least, most

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, int]:
        """Return the two numbers."""
        if isinstance(value, tuple):
            return value
        first, dots, second = value.partition("..")
        try:
            low, high = _int(first), _int(second if dots else first)
        except ValueError:
            raise option_error(param, ctx, value, "two whole numbers such as 1..10") from None
        if not self._least <= low <= high <= self._most:
            expected = f"two numbers from {self._least} to {self._most}, the smaller one first"
            raise option_error(param, ctx, value, expected)
        return low, high


class Blocktime(_Written):
    """Whole milliseconds, or `infinite`."""

    name = "MS"
    words = ("infinite",)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the text."""
        from deploykit.benchmarking.settings import can_be_text  # help does without it

        if not can_be_text("kmp_blocktime", value):
            raise option_error(param, ctx, value, "whole milliseconds or infinite")
        return str(value)


class Threads(_Written):
    """Threads inside an op x ops at once, `2x1,1x2`; one number, `2`, is `2x1`."""

    name = "INTRA[xINTER],..."

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[tuple[int, int], ...]:
        """Return the pairs, each once."""
        if isinstance(value, tuple):
            return value
        found = []
        for pair in value.split(","):
            intra, cross, inter = pair.partition("x")
            inter = inter if cross else "1"
            is_number = pair.isascii() and intra.isdecimal() and inter.isdecimal()
            if not (is_number and int(intra) and int(inter)):
                expected = "threads above zero such as 2, or 2x1 with the ops at the same time"
                raise option_error(param, ctx, pair, expected)
            if max(int(intra), int(inter)) > MOST_THREADS:
                raise option_error(param, ctx, pair, f"at most {MOST_THREADS} threads")
            found.append((int(intra), int(inter)))
        return tuple(dict.fromkeys(found))


class Switch(_Written):
    """`on`, `off` or `both`."""

    name = "on|off|both"
    words = ("on", "off", "both")
    _VALUES: ClassVar = {"on": (True,), "off": (False,), "both": (False, True)}

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[bool, ...]:
        """Return the positions of the switch."""
        if isinstance(value, tuple):
            return value
        if value not in self._VALUES:
            raise option_error(param, ctx, value, "one of on, off, both")
        return self._VALUES[value]


class OneOrMore(_Written):
    """One or more of some names, such as `default,caller`."""

    name = "NAME,..."

    is_list = True

    def __init__(self, names: tuple[str, ...]) -> None:
        self._known = self.words = names

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, ...]:
        """Return the names, each once."""
        if isinstance(value, tuple):
            return value
        for name in value.split(","):
            if name not in self._known:
                raise option_error(param, ctx, name, f"one of {', '.join(self._known)}")
        return tuple(dict.fromkeys(value.split(",")))


class DeviceName(_Written):
    """`cpu`, `gpu`, `gpu:N` or `all`."""

    name = "cpu|gpu|gpu:N|all"
    words = ("cpu", "gpu", "all")

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the device."""
        from deploykit.benchmarking.settings import can_be_text

        if not can_be_text("device", value):
            raise option_error(param, ctx, value, "one of cpu, gpu, gpu:N, all")
        return str(value)


class Pin(_Written):
    """`NAME=VALUE`."""

    name = "NAME=VALUE"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, str]:
        """Return name and value."""
        if isinstance(value, tuple):
            return value
        name, equals, pinned = value.partition("=")
        if not (name and equals):
            raise option_error(param, ctx, value, "NAME=VALUE")
        return name.removesuffix(":0"), pinned


class Alias(_Written):
    """`ALIAS=TENSOR`; `TENSOR:0` is `TENSOR`."""

    name = "ALIAS=TENSOR"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, str]:
        """Return alias and tensor."""
        if isinstance(value, tuple):
            return value
        alias, _, tensor = value.partition("=")
        if not (alias and tensor):
            raise option_error(param, ctx, value, "ALIAS=TENSOR, such as images=x")
        return alias, tensor


class Shape(_Written):
    """`NAME=1,224,224,3`: the sizes of an input; `NAME=` is one number."""

    name = "NAME=1,224,224,3"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, tuple[int, ...]]:
        """Return name and sizes."""
        if isinstance(value, tuple):
            return value
        name, equals, listed = value.partition("=")
        try:
            sizes = tuple(map(_int, listed.split(","))) if listed.strip() else ()
        except ValueError:
            equals = ""
        if not (name and equals):
            raise option_error(param, ctx, value, "a shape such as x=1,224,224,3")
        if min(sizes, default=1) < 1:
            raise option_error(param, ctx, value, "a shape of sizes above zero")
        return name.removesuffix(":0"), sizes


class Kinds(Names):
    """Some of these words, separated by commas; `all` stands for each."""

    name = "KINDS"
    is_list = True

    def __init__(self, known: Sequence[str]) -> None:
        self._known = tuple(known)
        self.words = (*self._known, "all")

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, ...]:
        """Return the words."""
        found = super().convert(value, param, ctx)
        for word in found:
            if word not in self.words:
                raise option_error(param, ctx, word, f"one of {', '.join(self.words)}")
        return self._known if "all" in found else found


class TrueOrFalse(click.types.BoolParamType):
    """`true` or `false`."""

    def get_metavar(self, param: click.Parameter, ctx: click.Context | None = None) -> str:
        """Return what help shows for it."""
        return "BOOL"


class ThreadPair(Threads):
    """Threads inside an op x ops at once, `2x1`."""

    name = "AxB"

    def convert(  # type: ignore[override]
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, int]:
        """Return the pair."""
        pairs = super().convert(value, param, ctx)
        if len(pairs) != 1:
            raise option_error(param, ctx, value, "one pair here, such as 2x1")
        return pairs[0]


class HomePath(PathName):
    """A path in which `~` is the user's folder, also where no shell has replaced it."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the path."""
        return os.path.expanduser(super().convert(value, param, ctx))
