"""What a model runs before it answers: it restores its variables and fills its tables.

A frozen graph runs nothing before it answers. So variables become constants, and each table is
filled in the graph itself, from constants, by a node that its readers wait for: TensorFlow skips a
table that holds as many entries already.
"""

import logging
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from deploykit.importers.checkpoints import Checkpoint
from deploykit.importers.meta_graphs import trained_variables
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
from deploykit.transforms.runtime.checkpoint_values import place_of
from deploykit.transforms.runtime.child_process import call
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
    """How the variables and tables of a model get their contents."""

    whole: Graph
    """The graph with its saver and initialisers, not cut to what answers."""
    checkpoint: Checkpoint | None = None
    restore_op: str = ""
    init_ops: tuple[str, ...] = ()
    files: Vocabularies = field(default_factory=Vocabularies)
    """The files that tables are filled from."""
    trained: tuple[str, ...] = ()
    """The variables that training changes, where the model tells."""

    @classmethod
    def of(
        cls, meta: MetaGraphDef, whole: Graph, checkpoint: Checkpoint | None, folder: Path
    ) -> "Initialisers":
        """Read from a MetaGraphDef what it says of its initialisers; `folder` holds its assets."""
        restore_op = meta.saver_def.restore_op_name
        starts = tuple(map(producer_name, init_ops(meta)))
        files = Vocabularies.of(meta, folder)
        return cls(whole, checkpoint, restore_op, starts, files, trained_variables(meta))

    def fill(self, graph: Graph, updates: Updates) -> None:
        """Turn the variables of a graph into constants, and fill its tables.

        GraphError: one of them has no contents, or none that fit. FileError: a file is missing.
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
        """Return what the init ops do besides reading the model's own vocabulary files."""
        return self.files.effects(self._leading_to(self.init_ops))

    def refuse_side_effects(self) -> None:
        """Raise RefusedError if the init ops do more than read the model's vocabulary files."""
        self.files.refuse_side_effects(self._leading_to(self.init_ops))

    def _restored(self, keys: set[str]) -> dict[str, list[Array]]:
        """Return what the checkpoint holds: values of variables, keys and values of tables.

        The restore op tells what comes from where; without one, variables go by their names.
        """
        if self.checkpoint is None or not (self.restore_op or self.checkpoint.files):
            return {}  # where there are tables alone, a SavedModel's folder of variables is empty
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
            "deploykit.transforms.runtime.checkpoint_values:read_checkpoint",
            self.checkpoint.prefix,
            places,
        )
        contents: dict[str, list[Array]] = {}
        for key, number in sorted(read):
            contents.setdefault(key, []).append(read[key, number])
        return contents

    def _copied(self) -> dict[str, str]:
        """Return the variables that begin as copies of others, by the copies.

        `tf.saved_model.save` copies the variables of Keras 3, and its checkpoint has the copies.
        """
        copied = {}
        for node in self.whole:
            if node.op == "AssignVariableOp" and len(node.data_inputs) == 2:
                copy, read = map(self.whole.producer, node.data_inputs)
                if copy.op == "VarHandleOp" and read.op == "ReadVariableOp":
                    copied[_key(copy)] = _key(self.whole.producer(read.inputs[0]))
        return copied

    def _computed(self, keys: set[str]) -> dict[str, list[Array]]:
        """Return what the init ops put into variables and tables; a TensorFlow child computes it.

        RefusedError: they do more than read the model's own vocabulary files.
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
        """Return what the nodes need to run, checked, with functions inlined."""
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
    """Return what loading a model runs before it answers."""
    collections = [meta.collection_def[key] for key in _INIT_COLLECTIONS]
    names = [name for collection in collections for name in collection.node_list.value]
    if _INIT_SIGNATURE in meta.signature_def:
        names += [t.name for t in meta.signature_def[_INIT_SIGNATURE].outputs.values()]
    return names


def _key(node: Node) -> str:
    """Return the name under which functions, initialisers and checkpoints know a resource."""
    return str(node.attr("shared_name") or node.name)


def _resource(graph: Graph, setter: Node) -> Node:
    """Return the variable or table that a node gives contents to."""
    resource = graph.producer(setter.inputs[0])
    while resource.op == "Identity":
        resource = graph.producer(resource.inputs[0])
    return resource


def _setters(graph: Graph) -> dict[str, Node]:
    """Return the nodes that give variables and tables their contents, by the keys of these."""
    setters = {}
    for node in graph:
        if node.op in _ASSIGN_OPS or node.op.startswith(_FILLING_OPS):
            resource = _resource(graph, node)
            if resource.op in VARIABLE_OPS or resource.op in TABLE_OPS:
                setters[_key(resource)] = node
    return setters


def _contents_of(graph: Graph, setter: Node) -> list[str]:
    """Return the tensors that hold what a node puts in: a value, or the keys and the values."""
    if setter.op in _ASSIGN_OPS or len(setter.data_inputs) == 3:
        return list(setter.data_inputs[1:])
    table = _resource(graph, setter)
    exported = Node(graph.unique_name(f"{setter.name}/export"), "LookupTableExportV2")
    exported = replace(exported, inputs=(setter.inputs[0], f"^{setter.name}"))
    exported = exported.with_attrs(Tkeys=table.attr("key_dtype"), Tvalues=table.attr("value_dtype"))
    graph.add(exported)
    return [exported.name, f"{exported.name}:1"]


def _is_empty_table(graph: Graph, node: Node) -> bool:
    """Say whether a node is a table that no constants fill within the graph."""
    if node.op not in TABLE_OPS:
        return False
    filling = (reader for reader in graph.readers(node.name) if reader.op.startswith(_FILLING_OPS))
    return all(item.op in READING_FILES for item in filling)


def _fill_table(graph: Graph, table: Node, keys: Array, values: Array) -> None:
    """Let the readers of a table wait until it holds these entries."""
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
    """Return the entries among the buckets of a dense table, which a checkpoint holds as they lie.

    GraphError: its keys are vectors, which no other table takes.
    """
    marks = [graph.constant(tensor) for tensor in table.data_inputs]  # empty, and deleted
    if keys.size != len(keys) or None in marks:
        raise GraphError("table-not-fillable", node=table.name)
    keys = keys.reshape(-1)
    unused = {mark.value.item() for mark in marks if mark is not None}
    used = np.array([key not in unused for key in keys.tolist()])
    return keys[used], values.reshape(-1, *(table.attr("value_shape") or ()))[used]


def _lasting(table: Node) -> Node:
    """Return a table whose entries last from run to run, and can be listed as keys and values."""
    op = table.op.removeprefix("Anonymous")
    op = op if op == table.op else f"{op}V2"
    if "Dense" in op:
        op = "MutableHashTableOfTensorsV2" if table.attr("value_shape") else "MutableHashTableV2"
        table = table.with_data_inputs()
    return table if op == table.op else with_op(table, op)
