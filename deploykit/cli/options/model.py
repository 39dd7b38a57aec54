"""Which model, and which part of it."""

import click

from deploykit.cli.options.grouping import as_one, by_name
from deploykit.cli.options.headings import model_option
from deploykit.cli.options.types import Names, PathName, Pin, Tags
from deploykit.freezing.interface import Interface, Source

_which_graph = (
    model_option("--tags", type=Tags(), default=(), help="Tags of the graph in a SavedModel that "
                 "holds several; \"\" is the graph without tags [default: serve, or the only "
                 "graph]."),
    model_option("--signature", metavar="NAME", help="Signature of the model [default: "
                 "serving_default, or the only one]."),
)  # fmt: skip


_interface = (
    model_option("--inputs", type=Names(), default=(), help="Tensors to feed [default: those of "
                 "the signature, or the placeholders]."),
    model_option("--outputs", type=Names(), default=(), help="Tensors to compute [default: those "
                 "of the signature, or the nodes that no other node reads]. A constant or variable "
                 "that no other node reads is kept if it is named here."),
    *_which_graph,
)  # fmt: skip


interface = as_one("interface", Interface, *_interface)


part = as_one("source", Source, click.argument("model", type=PathName()), *_interface)


classifier = as_one(
    "interface",
    Interface,
    model_option("--input_layer", "--input-layer", "--inputs", "inputs", type=Names(), default=(),
                 help="Tensor that takes the image [default: the model's input]."),
    model_option("--output_layer", "--output-layer", "--outputs", "outputs", type=Names(),
                 default=(), help="Tensor that gives the scores [default: the model's output]."),
    *_which_graph,
)  # fmt: skip


source = as_one(
    "source",
    Source,
    click.argument("model", type=PathName()),
    *_interface,
    model_option("--pin", "pins", type=Pin(), multiple=True, callback=by_name,
                 help="Replace a placeholder by this constant; may be repeated."),
    model_option("--graph", type=PathName("FILE"), help="The GraphDef of a checkpoint without a "
                 ".meta file, or the JSON file of a Keras model whose weights are in an .h5 file."),
)  # fmt: skip
