"""Which model, and which part of it."""

import click

from deploykit.cli.options.grouping import as_one, by_name
from deploykit.cli.options.types import Names, PathName, Pin
from deploykit.freezing.interface import Interface, Source

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


interface = as_one("interface", Interface, *_interface)


part = as_one("source", Source, click.argument("model", type=PathName()), *_interface)


classifier = as_one(
    "interface",
    Interface,
    click.option("--input_layer", "--input-layer", "--inputs", "inputs", type=Names(), default=(),
                 help="Tensor that takes the image [default: the model's input]."),
    click.option("--output_layer", "--output-layer", "--outputs", "outputs", type=Names(),
                 default=(), help="Tensor that gives the scores [default: the model's output]."),
    *_which_graph,
)  # fmt: skip


source = as_one(
    "source",
    Source,
    click.argument("model", type=PathName()),
    *_interface,
    click.option("--pin", "pins", type=Pin(), multiple=True, callback=by_name,
                 help="Turn a placeholder into a constant; may be repeated."),
    click.option("--graph", type=PathName("FILE"),
                 help="The GraphDef of a checkpoint that has no .meta file, or the JSON file of a "
                 "Keras model whose weights are in an .h5 file."),
)  # fmt: skip
