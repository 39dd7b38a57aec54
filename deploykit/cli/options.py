"""Option groups that several commands share; some arrive in the command as one value."""

import functools
import logging
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import click

from deploykit.benchmarking.settings import INPUTS, Settings, Sweep
from deploykit.cli.comparison import Comparison
from deploykit.cli.option_types import (
    Blocktime,
    Counts,
    Device,
    Finite,
    Names,
    Pin,
    Range,
    Shape,
    Switch,
    Threads,
)
from deploykit.cli.outputs import Option, add, writes
from deploykit.freezing.interface import Interface

if TYPE_CHECKING:
    from deploykit.serving.client.client import Client
    from deploykit.serving.client.endpoint import Endpoint
    from deploykit.transforms.core.graph import Graph

Command = TypeVar("Command", bound=Callable[..., Any])


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
        @functools.wraps(command)
        def grouped(**values: Any) -> Any:
            values[name] = kind(**{each: values.pop(each) for each in names})
            return command(**values)

        names = add(grouped, options)
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
        from deploykit.freezing.freeze import freeze_as

        return freeze_as(self.model, self, graph=self.graph_file, pins=dict(self.pins))


@dataclass(frozen=True)
class Piping:
    """What is run behind a pipeline over files, besides a frozen graph's outputs."""

    fetches: Sequence[str] = ()
    init: Sequence[str] = ()
    wait_ms: float | None = None
    preprocess: str | None = None
    on_error: str = "stop"
    shuffle: bool = False
    cache: str | None = None
    buckets: Sequence[int] = ()
    private_threads: int | None = None
    workers: int | None = None
    address: str | None = None

    @property
    def given(self) -> bool:
        """Whether any of it was asked for."""
        return self != Piping()

    @property
    def for_tfdata(self) -> bool:
        """Whether any of it is for tf.data alone."""
        return bool(self.cache or self.buckets or self.private_threads or self.served)

    @property
    def served(self) -> bool:
        """Whether a tf.data service reads."""
        return self.workers is not None or self.address is not None

    def arguments(self) -> dict[str, Any]:
        """Return it as `measure_input` takes it. FileError, GraphError: no such preprocessing."""
        from deploykit.input.preprocessing import load_preprocessing

        return {
            "fetches": tuple(self.fetches),
            "init": tuple(self.init),
            "wait_ms": self.wait_ms,
            "preprocessing": None
            if self.preprocess is None
            else load_preprocessing(self.preprocess),
            "on_error": self.on_error,
            "shuffle": 0 if self.shuffle else None,
            "cache": self.cache or "",
            "buckets": tuple(sorted(self.buckets)),
            "private_threads": self.private_threads,
        }


@dataclass(frozen=True)
class Feeding:
    """What a model is run on: data, or made-up values; and ops that may act on files."""

    shapes: Sequence[tuple[str, tuple[int, ...]]] = ()
    data: str | None = None
    input_range: tuple[float, float] = (-1.0, 1.0)
    allowed_ops: Sequence[str] = ()

    def arguments(self) -> dict[str, Any]:
        """Return shapes, data and range as `batches` takes them. FileError: data are not there."""
        from deploykit.storage.files import load_data

        return {
            "shapes": dict(self.shapes),
            "data": None if self.data is None else load_data(self.data),
            "input_range": self.input_range,
        }


@dataclass(frozen=True)
class Connection:
    """How a server is spoken to; all but the address."""

    tls: bool = False
    ca: str | None = None
    certificate: str | None = None
    key: str | None = None
    server_name: str | None = None
    timeout: float = 60.0

    def client(self, address: str) -> "Client":
        """Return a client. Error: the address is none. FileError: a certificate is not there."""
        from deploykit.serving.client.client import Client

        return Client(address, **asdict(self))

    def endpoint(self, address: str) -> "Endpoint":
        """Return it for whoever counts each call, so none is repeated."""
        from deploykit.serving.client.endpoint import Endpoint

        return Endpoint(address, **asdict(self), retries=0)


def _debug(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    if value:
        from deploykit.transforms.core.running.child import limits

        limits.show_log = True
        logging.getLogger("deploykit").setLevel(logging.DEBUG)


def _timeout(ctx: click.Context, param: click.Parameter, value: float) -> None:
    from deploykit.transforms.core.running.child import limits

    limits.seconds = value


def _memory(ctx: click.Context, param: click.Parameter, value: int | None) -> None:
    from deploykit.transforms.core.running.child import limits

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
                 "the signature's, or the nodes that nobody reads]; a constant or a variable that "
                 "nobody reads is kept if it is named here."),
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


def output(act: str, end: str = ".pb") -> Option:
    """Return the options of a command that writes `X.act` with this end, unless told otherwise."""
    text = f"File to write [default: beside the model, X.{act}{end}]."
    return writes(click.option("-o", "--output", metavar="FILE", help=text), act=act, end=end)


def results(*more: Option) -> Option:
    """Return the options of a command that only writes what is asked for: JSON, or more files."""
    text = "Write the JSON document to a file too."
    return writes(*more, click.option("-o", "--output", metavar="FILE", help=text))


result_file = results()

preprocess = click.option(
    "--preprocess",
    metavar="FILE.json",
    help="What becomes of the features of files [default: what the inputs ask for].",
)

comparison = _as_one(
    "comparison",
    Comparison,
    click.option("--data", metavar="DATA", help="Samples to run both graphs on: a .npz file of "
                 "arrays by input name, or a folder of TFRecords, images or CSV files; with "
                 "labels, accuracy is shown too [default: made up, seed 0]."),
    preprocess,
    click.option("--input-range", type=Range(), default="-1,1", show_default=True,
                 help="Range of made-up float inputs."),
    click.option("--allow-op", "allowed_ops", metavar="OP", multiple=True,
                 help="Run this op although it acts on files or processes; may be repeated."),
)  # fmt: skip

_shapes = click.option("--shape", "shapes", type=Shape(), multiple=True,
                       help="Sizes of an input that the model leaves open; may be "
                       "repeated.")  # fmt: skip
_made_up = (
    click.option("--input-range", type=Range(), default="-1,1", show_default=True,
                 help="Range of made-up float inputs."),
    click.option("--allow-op", "allowed_ops", metavar="OP", multiple=True,
                 help="Run this op although it acts on files or processes; may be repeated."),
)  # fmt: skip
feeding = _as_one(
    "feeding",
    Feeding,
    _shapes,
    click.option("--data", metavar="FILE.npz", help="Arrays by input name to run on, sample by "
                 "sample [default: made up, seed 0]."),
    *_made_up,
)  # fmt: skip
feeding_or_files = _as_one(
    "feeding",
    Feeding,
    _shapes,
    click.option("--data", metavar="FILE.npz|DIR", help="Arrays by input name to run on, sample by "
                 "sample [default: made up, seed 0]; or a folder of TFRecords, CSV files or images "
                 "that are read meanwhile."),
    *_made_up,
)  # fmt: skip

piping = _as_one(
    "piping",
    Piping,
    click.option("--fetch", "fetches", type=Names(), default=(), help="Ops or tensors to run in "
                 "place of the outputs, behind files; a training step, for example."),
    click.option("--init", type=Names(), default=(), help="Ops to run once before."),
    click.option("--simulate-accelerator", "wait_ms", type=Finite(min=0), metavar="MS",
                 help="Wait so long in place of computing, which takes no CPU."),
    preprocess,
    click.option("--on-error", type=click.Choice(("stop", "skip")), default="stop",
                 show_default=True, help="Whether a damaged image, in a file or a TFRecord, stops "
                 "the run or is left out."),
    click.option("--shuffle", is_flag=True, help="Let files, and records near each other, change "
                 "places, as for training."),
    click.option("--cache", metavar="memory|FILE", help="tf.data: keep what is parsed, so that "
                 "later epochs do not read."),
    click.option("--buckets", type=Counts(), default=(), help="tf.data: divide texts at these "
                 "lengths, so that a batch holds texts of like length and is filled up less."),
    click.option("--private-threads", type=click.IntRange(min=1), metavar="N", help="tf.data: read "
                 "on so many threads of its own, not on the model's."),
    click.option("--service", "workers", type=click.IntRange(min=1), metavar="N", help="Let so "
                 "many workers of tf.data service read and parse, each its share of the files; an "
                 "epoch is checked before. They listen on all interfaces."),
    click.option("--service-address", "address", metavar="HOST:PORT", help="Let the workers of a "
                 "tf.data service that runs already do so."),
)  # fmt: skip

limits = _all(
    click.option("--timeout", type=Finite(min=0, min_open=True), default=600,
                 show_default=True, metavar="SECONDS", expose_value=False, callback=_timeout,
                 help="Give TensorFlow at most this long."),
    click.option("--memory-limit", type=click.IntRange(min=1), metavar="MIB", expose_value=False,
                 callback=_memory, help="Give TensorFlow at most this much memory."),
)  # fmt: skip


def tuned(ctx: click.Context, param: click.Parameter, value: str | None) -> Settings:
    """Return the settings in a file of `deploykit tune`, or none."""
    if value is None:
        return Settings()
    from deploykit.benchmarking.results import load_tuned

    return load_tuned(value)


sweep = _as_one(
    "sweep",
    Sweep,
    click.option("--batch", type=Counts(), default=(), help="Samples at once; several are each "
                 "measured [default: what the model demands, or 1]."),
    click.option("--threads", type=Threads(), default=(), help="Threads inside an op x ops at once "
                 "[default: TensorFlow's]."),
    click.option("--onednn", type=Switch(), default=(), help="oneDNN's kernels."),
    click.option("--caller-thread", type=Switch(), default=(), help="Whether the thread that calls "
                 "oneDNN takes a share of the work."),
    click.option("--keep-memory", type=Switch(), default=(), help="Whether the C library keeps "
                 "freed memory (MALLOC_* variables)."),
    click.option("--concurrency", type=Counts(), default=(), help="Calls in flight [default: 1]."),
    click.option("--kmp-blocktime", type=Blocktime(), help="KMP_BLOCKTIME of old guides; also "
                 "measured without, to see whether it does anything."),
    click.option("--kmp-affinity", metavar="TEXT", help="KMP_AFFINITY, likewise."),
    click.option("--omp-num-threads", type=click.IntRange(min=1), metavar="N",
                 help="OMP_NUM_THREADS, likewise."),
    click.option("--xla", is_flag=True, help="Compile with XLA (auto-clustering)."),
    click.option("--bf16", is_flag=True, help="Let oneDNN compute in bfloat16."),
    click.option("--input", type=click.Choice((*INPUTS, "queue", "all")), help="How data reach the "
                 "model: fed with each call, or through tf.data with prefetch [default: feed]; "
                 "files (--data DIR) also through queues, or all in turn [default: all]."),
    click.option("--device", type=Device(), help="Where it runs; all: a copy of the model on every "
                 "GPU, and on gpu:0 alone to compare [default: cpu]. Layouts are compared with "
                 "deploykit transform --transforms 'convert_layout(to=NCHW)'."),
    click.option("--tuned", "base", metavar="FILE", callback=tuned,
                 help="Settings that deploykit tune wrote; options given here win."),
)  # fmt: skip

connection = _as_one(
    "connection",
    Connection,
    click.option("--tls", is_flag=True, help="Encrypt, and trust the authorities that the system "
                 "trusts."),
    click.option("--ca", metavar="FILE.pem", help="Encrypt, and trust the authorities in this "
                 "file."),
    click.option("--certificate", metavar="FILE.pem", help="Your own certificate, where the server "
                 "asks for one (mutual TLS)."),
    click.option("--key", metavar="FILE.pem", help="Its private key."),
    click.option("--server-name", metavar="NAME", help="The name in the server's certificate, "
                 "where the address has another."),
    click.option("--timeout", type=Finite(min=0, min_open=True), default=60, show_default=True,
                 metavar="SECONDS", help="Wait at most this long for an answer."),
)  # fmt: skip

which_version = _all(
    click.option("--version", type=click.IntRange(min=0), metavar="N",
                 help="Version of the model [default: the newest]."),
    click.option("--version-label", "label", default="", metavar="LABEL",
                 help="Label of the version instead, such as stable."),
)  # fmt: skip
