"""Option groups that several commands share; some arrive in the command as one value."""

import functools
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import click

from deploykit.comparison import Comparison
from deploykit.interface import Interface

if TYPE_CHECKING:
    from transforms.core.graph import Graph

    _ParamType = click.ParamType[Any]
else:
    _ParamType = click.ParamType
Command = TypeVar("Command", bound=Callable[..., Any])


class Names(_ParamType):
    """Tensor names separated by commas; `name` and `name:0` are alike."""

    name = "NAMES"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, ...]:
        """Return the names as a tuple."""
        if isinstance(value, tuple):
            return value
        return tuple(name.strip() for name in value.split(",") if name.strip())


class Range(_ParamType):
    """Two numbers, `LO,HI`."""

    name = "LO,HI"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[float, float]:
        """Return the two numbers."""
        if isinstance(value, tuple):
            return value
        try:
            low, high = map(float, value.split(","))
        except ValueError:
            self.fail(f"{value!r} is not two numbers such as -1,1", param, ctx)
        if not low < high:
            self.fail(f"{value!r} is empty: the first number must be the smaller one", param, ctx)
        return low, high


class Pin(_ParamType):
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
            self.fail(f"{value!r} is not NAME=VALUE", param, ctx)
        return name.removesuffix(":0"), pinned


def _all(*options: Callable[[Command], Command]) -> Callable[[Command], Command]:
    def apply(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return apply


def _as_one(
    name: str, kind: Callable[..., object], *options: Callable[[Any], Any]
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return a decorator that hands the values of options to the command as one `kind`."""

    def apply(command: Callable[..., Any]) -> Callable[..., Any]:
        before = len(getattr(command, "__click_params__", ()))

        @functools.wraps(command)
        def grouped(**values: Any) -> Any:
            values[name] = kind(**{each: values.pop(each) for each in names})
            return command(**values)

        for option in reversed(options):
            grouped = option(grouped)
        parameters: list[click.Parameter] = grouped.__click_params__[before:]  # type: ignore[attr-defined]
        names = [str(parameter.name) for parameter in parameters]
        return grouped

    return apply


@dataclass(frozen=True)
class Source(Interface):
    """A model on disk and what the user says of it."""

    model: str = ""
    pins: Sequence[tuple[str, str]] = ()
    graph_file: str | None = None

    def freeze(self) -> "Graph":
        """Return the model as a frozen graph."""
        return self.frozen(self.model, graph=self.graph_file, pins=dict(self.pins))


def _debug(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    if value:
        from transforms.core.child import limits

        limits.show_log = True
        for name in ("deploykit", "transforms"):
            logging.getLogger(name).setLevel(logging.DEBUG)


def _timeout(ctx: click.Context, param: click.Parameter, value: float) -> None:
    from transforms.core.child import limits

    limits.seconds = value


def _memory(ctx: click.Context, param: click.Parameter, value: int | None) -> None:
    from transforms.core.child import limits

    limits.memory = None if value is None else value << 20


everywhere = _all(
    click.option("--json", "as_json", is_flag=True, help="Print one JSON document on stdout."),
    click.option(
        "--debug", is_flag=True, expose_value=False, is_eager=True, callback=_debug,
        help="Show TensorFlow's log, what was left alone and why, and tracebacks.",
    ),
)  # fmt: skip

_which_graph = (
    click.option("--tags", type=Names(), default=(), help="Tags of a SavedModel's graph [default: "
                 "serve, or the only graph]."),
    click.option("--signature", metavar="NAME", help="Signature of the model [default: "
                 "serving_default, or the only one]."),
)  # fmt: skip
_interface = (
    click.option("--inputs", type=Names(), default=(), help="Tensors that are fed [default: the "
                 "signature's, or the placeholders]."),
    click.option("--outputs", type=Names(), default=(), help="Tensors that are fetched [default: "
                 "the signature's, or the nodes that nobody reads]."),
    *_which_graph,
)  # fmt: skip
interface = _as_one("interface", Interface, *_interface)

classifier = _as_one(
    "interface",
    Interface,
    click.option("--input_layer", "--input-layer", "--inputs", "inputs", type=Names(), default=(),
                 help="Tensor that takes the image [default: the model's input]."),
    click.option("--output_layer", "--output-layer", "--outputs", "outputs", type=Names(),
                 default=(), help="Tensor that gives the scores [default: the model's output]."),
    *_which_graph,
)  # fmt: skip

source = _as_one(
    "source",
    Source,
    click.argument("model"),
    *_interface,
    click.option("--pin", "pins", type=Pin(), multiple=True,
                 help="Turn a placeholder into a constant; may be repeated."),
    click.option("--graph", "graph_file", metavar="FILE",
                 help="The GraphDef of a checkpoint that has no .meta file, or the JSON file of a "
                 "Keras model whose weights are in an .h5 file."),
)  # fmt: skip

output = _all(
    click.option("-o", "--output", metavar="FILE", help="File to write [default: beside the "
                 "input, such as X.quantized.pb]."),
    click.option("--force", is_flag=True, help="Replace an existing output file."),
)  # fmt: skip

result_file = _all(
    click.option("-o", "--output", metavar="FILE", help="Write the JSON document to a file too."),
    click.option("--force", is_flag=True, help="Replace an existing output file."),
)  # fmt: skip

comparison = _as_one(
    "comparison",
    Comparison,
    click.option("--data", metavar="FILE.npz", help="Arrays by input name to run both graphs on; "
                 "with `labels`, accuracy is shown too [default: made up, seed 0]."),
    click.option("--input-range", type=Range(), default="-1,1", show_default=True,
                 help="Range of made-up float inputs."),
    click.option("--allow-op", "allowed_ops", metavar="OP", multiple=True,
                 help="Run this op although it acts on files or processes; may be repeated."),
)  # fmt: skip

limits = _all(
    click.option("--timeout", type=click.FloatRange(min=0, min_open=True), default=600,
                 show_default=True, metavar="SECONDS", expose_value=False, callback=_timeout,
                 help="Give TensorFlow at most this long."),
    click.option("--memory-limit", type=click.IntRange(min=1), metavar="MIB", expose_value=False,
                 callback=_memory, help="Give TensorFlow at most this much memory."),
)  # fmt: skip
