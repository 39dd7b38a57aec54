"""Initialization of a model: it restores variables and fills lookup tables.

A frozen graph has no initialization step. So variables become constants, and a node that the
readers wait for fills each table from constants. TensorFlow skips a table that is already full.
"""

import logging
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from deploykit.importers.meta_graphs import trained_variables
from deploykit.importers.model_path import Checkpoint
from deploykit.importers.updates import Updates
from deploykit.importers.variables import fill_variables
from deploykit.transforms.common.errors import GraphError
from deploykit.transforms.inline_functions import inline_functions
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.ir.node import Node, producer_name
from deploykit.transforms.ir.ops import VARIABLE_OPS, with_op
from deploykit.transforms.ir.protos import MetaGraphDef
from deploykit.transforms.ir.stateful_ops import TABLE_OPS
from deploykit.transforms.ir.tensors import Array, DType
from deploykit.transforms.remove_unused_functions import remove_unused_functions
from deploykit.transforms.runtime.child_process import call
from deploykit.transforms.runtime.session import check_type, place_of
from deploykit.transforms.untrusted.side_effects import READING_FILES, Effect
from deploykit.transforms.untrusted.validate import validate
from deploykit.transforms.untrusted.vocabularies import Vocabularies, forget_reading

logger = logging.getLogger("deploykit")

_ASSIGN_OPS = frozenset({"Assign", "AssignVariableOp"})
_FILLING_OPS = ("InitializeTable", "LookupTableImport")
_INIT_SIGNATURE = "__saved_model_init_op"
_INIT_COLLECTIONS = ("saved_model_main_op", "legacy_init_op", "table_initializer", "local_init_op")


@dataclass(frozen=True)
class Initialisers:
    """The sources of the contents of a model's variables and tables."""

    whole: Graph
    """The complete graph with its saver and initializers."""
    checkpoint: Checkpoint | None = None
    restore_op: str = ""
    init_ops: tuple[str, ...] = ()
    files: Vocabularies = field(default_factory=Vocabularies)
    """Vocabulary files of the tables."""
    trained: tuple[str, ...] = ()
    """Names of the trainable variables, if the model contains them."""

    @classmethod
    def of(
        cls, meta: MetaGraphDef, whole: Graph, checkpoint: Checkpoint | None, folder: Path
    ) -> "Initialisers":
        """Read the initializers of a MetaGraphDef; `folder` contains its assets."""
        restore_op = meta.saver_def.restore_op_name
        starts = tuple(map(producer_name, init_ops(meta)))
        files = Vocabularies.of(meta, folder)
        return cls(whole, checkpoint, restore_op, starts, files, trained_variables(meta))

    def fill(self, graph: Graph, updates: Updates) -> None:
        """Convert the variables of a graph to constants, and fill its tables.

        GraphError: a variable or table has no contents or unsuitable ones. FileError: a file is
        missing.
        """
        variables = {node.name: _key(node) for node in graph if node.op in VARIABLE_OPS}
        tables = {node.name: _key(node) for node in graph if _is_empty_table(graph, node)}
        keys = {*variables.values(), *tables.values()}
        contents = self._restored(keys) if keys else {}
        contents |= self._computed(keys - set(contents))
        missing = [name for name, key in (variables | tables).items() if key not in contents]
        if missing:
            node = graph[missing[0]]
            more = f" (nor {len(missing) - 1} others)" if len(missing) > 1 else ""
            what = "variable" if node.op in VARIABLE_OPS else "table"
            raise GraphError("not-initialised", node=node.name, what=what, op=node.op, more=more)
        values = {name: contents[key][0] for name, key in variables.items()}
        fill_variables(graph, values, updates.states, updates.idle)
        for name, key in tables.items():
            forget_reading(graph, name)
            _fill_table(graph, graph[name], *contents[key])
            logger.info("table '%s' is filled within the graph", name)

    def effects(self) -> list[Effect]:
        """Return side effects of the init ops other than reading the model's vocabulary files."""
        return self.files.effects(self._leading_to(self.init_ops))

    def refuse_side_effects(self) -> None:
        """Raise RefusedError if the init ops have side effects besides reading vocabulary files."""
        self.files.refuse_side_effects(self._leading_to(self.init_ops))

    def _restored(self, keys: set[str]) -> dict[str, list[Array]]:
        """Read the values of variables and the keys and values of tables from the checkpoint.

        The restore op maps them to checkpoint entries; without one, variable names are used.
        """
        if self.checkpoint is None or not (self.restore_op or self.checkpoint.files):
            return {}  # a SavedModel that only has tables has no variable files
        places = {(key, 0): (key, "") for key in keys}
        if self.restore_op:
            graph = self._leading_to([self.restore_op])
            setters = _setters(graph)
            setters |= {
                key: setters[copy]
                for copy, key in self._copied().items()
                if copy in setters and key not in setters
            }
            places = {
                (key, number): place
                for key, setter in setters.items()
                if key in keys
                for number, tensor in enumerate(setter.data_inputs[1:])
                if (place := place_of(graph, tensor)) is not None
            }
        if not places:
            return {}
        self.checkpoint.check()
        read = call(
            "deploykit.transforms.runtime.session:read_checkpoint",
            self.checkpoint.prefix,
            places,
        )
        contents: dict[str, list[Array]] = {}
        for key, number in sorted(read):
            contents.setdefault(key, []).append(read[key, number])
        return contents

    def _copied(self) -> dict[str, str]:
        """Return the original of each variable that is initialized as a copy, by copy.

        `tf.saved_model.save` copies the variables of Keras 3, and the checkpoint has the copies.
        """
        copied = {}
        for node in self.whole:
            if node.op == "AssignVariableOp" and len(node.data_inputs) == 2:
                copy, read = map(self.whole.producer, node.data_inputs)
                if copy.op == "VarHandleOp" and read.op == "ReadVariableOp":
                    copied[_key(copy)] = _key(self.whole.producer(read.inputs[0]))
        return copied

    def _computed(self, keys: set[str]) -> dict[str, list[Array]]:
        """Run the init ops in a TensorFlow child process; return contents of variables and tables.

        RefusedError: they have side effects besides reading the model's vocabulary files.
        """
        filling = [node.name for node in self.whole if node.op.startswith(_FILLING_OPS)]
        graph = self._leading_to([*self.init_ops, *filling]) if keys else Graph()
        sources = {
            key: _contents_of(graph, setter)
            for key, setter in _setters(graph).items()
            if key in keys
        }
        graph.outputs = tuple(tensor for tensors in sources.values() for tensor in tensors)
        if not graph.outputs:
            return {}
        graph.prune()
        self.files.refuse_side_effects(graph)
        content = b"".join(graph.serialized())
        values = call("deploykit.transforms.runtime.session:run_each", content, list(graph.outputs))
        return {
            key: [values[tensor] for tensor in tensors]
            for key, tensors in sources.items()
            if all(tensor in values for tensor in tensors)
        }

    def _leading_to(self, names: Iterable[str]) -> Graph:
        """Return the validated subgraph that the nodes need, with functions inlined."""
        graph = self.whole.copy()
        graph.inputs, graph.outputs = (), tuple(n for n in names if producer_name(n) in graph)
        self.files.put_into(graph)
        if not graph.outputs:
            return Graph()
        graph.prune()
        self.files.check(graph)
        remove_unused_functions(graph)
        validate(graph)
        inline_functions(graph)
        self.files.take_from_beside(graph)
        return graph


def init_ops(meta: MetaGraphDef) -> list[str]:
    """Return the names of the ops that a loader runs to initialize a model."""
    collections = [meta.collection_def[key] for key in _INIT_COLLECTIONS]
    names = [name for collection in collections for name in collection.node_list.value]
    if _INIT_SIGNATURE in meta.signature_def:
        names += [t.name for t in meta.signature_def[_INIT_SIGNATURE].outputs.values()]
    return names


def _key(node: Node) -> str:
    """Return the name of a resource in functions, initializers and checkpoints."""
    return str(node.attr("shared_name") or node.name)


def _resource(graph: Graph, setter: Node) -> Node:
    """Return the variable or table that a node initializes."""
    resource = graph.producer(setter.inputs[0])
    while resource.op == "Identity":
        resource = graph.producer(resource.inputs[0])
    return resource


def _setters(graph: Graph) -> dict[str, Node]:
    """Return the nodes that initialize variables and tables, by resource key."""
    setters = {}
    for node in graph:
        if node.op in _ASSIGN_OPS or node.op.startswith(_FILLING_OPS):
            resource = _resource(graph, node)
            if resource.op in VARIABLE_OPS or resource.op in TABLE_OPS:
                setters[_key(resource)] = node
    return setters


def _contents_of(graph: Graph, setter: Node) -> list[str]:
    """Return the tensors that a node stores: a value, or keys and values."""
    if setter.op in _ASSIGN_OPS or len(setter.data_inputs) == 3:
        return list(setter.data_inputs[1:])
    table = _resource(graph, setter)
    exported = Node(graph.unique_name(f"{setter.name}/export"), "LookupTableExportV2")
    exported = replace(exported, inputs=(setter.inputs[0], f"^{setter.name}"))
    exported = exported.with_attrs(Tkeys=table.attr("key_dtype"), Tvalues=table.attr("value_dtype"))
    graph.add(exported)
    return [exported.name, f"{exported.name}:1"]


def _is_empty_table(graph: Graph, node: Node) -> bool:
    """Return whether a node is a table that the graph does not fill from constants."""
    if node.op not in TABLE_OPS:
        return False
    filling = (reader for reader in graph.readers(node.name) if reader.op.startswith(_FILLING_OPS))
    return all(item.op in READING_FILES for item in filling)


def _fill_table(graph: Graph, table: Node, keys: Array, values: Array) -> None:
    """Add ops that fill a table with these entries before its readers run.

    GraphError: the entries do not fit the table.
    """
    check_type(table, keys, table.attr("key_dtype"))
    check_type(table, values, table.attr("value_dtype"))
    readers = graph.consumers(table.name)
    if "Dense" in table.op:
        keys, values = _entries(graph, table, keys, values)
    table = graph.replace(table, _lasting(table))
    order = np.argsort(keys, kind="stable") if keys.ndim == 1 else slice(None)
    arrays = {
        "keys": (keys[order], table.attr("key_dtype")),
        "values": (values[order], table.attr("value_dtype")),
    }
    names = [
        graph.add(Node.constant(graph.unique_name(f"{table.name}/{name}"), array, dtype)).name
        for name, (array, dtype) in arrays.items()
    ]
    is_fixed = table.op.startswith("HashTable")
    op = "InitializeTable" if is_fixed else "LookupTableImport"
    op += "V2" if table.op.endswith("V2") else ""
    filling = Node(graph.unique_name(f"{table.name}/fill"), op, (table.name, *names))
    types = [DType(dtype) for _, dtype in arrays.values()]
    attrs = zip(("Tkey", "Tval") if is_fixed else ("Tin", "Tout"), types, strict=True)
    graph.add(filling.with_attrs(**dict(attrs)))
    for reader in readers:
        graph.replace(reader, reader.with_control_inputs(f"^{filling.name}"))


def _entries(graph: Graph, table: Node, keys: Array, values: Array) -> tuple[Array, Array]:
    """Return the used entries of a dense table, whose checkpoint contains all buckets.

    GraphError: its keys are vectors, which other tables do not support.
    """
    marks = [graph.constant(tensor) for tensor in table.data_inputs]  # empty, and deleted
    if keys.size != len(keys) or None in marks:
        raise GraphError("table-not-fillable", node=table.name)
    keys = keys.reshape(-1)
    unused = {mark.value.item() for mark in marks if mark is not None}
    used = np.array([key not in unused for key in keys.tolist()])
    return keys[used], values.reshape(-1, *(table.attr("value_shape") or ()))[used]


def _lasting(table: Node) -> Node:
    """Return a table op whose entries persist between runs and can be listed."""
    op = table.op.removeprefix("Anonymous")
    op = op if op == table.op else f"{op}V2"
    if "Dense" in op:
        op = "MutableHashTableOfTensorsV2" if table.attr("value_shape") else "MutableHashTableV2"
        table = table.with_data_inputs()
    return table if op == table.op else with_op(table, op)
