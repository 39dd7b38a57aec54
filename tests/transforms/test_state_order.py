"""remove_control_dependencies keeps the order of uses of state, for all kinds of state."""

import numpy as np
import pytest

from deploykit.transforms.common.errors import GraphError
from deploykit.transforms.ir.graph import Graph
from deploykit.transforms.remove_control_dependencies import remove_control_dependencies
from deploykit.transforms.runtime.session import Session
from tests.support import building, skipped, tf, transform


def mutable_table(raw, tf):
    table = raw.MutableHashTableV2(key_dtype=tf.int64, value_dtype=tf.float32)
    return table, lambda value: insert(raw, table, value)


def insert(raw, table, value):
    return raw.LookupTableInsertV2(table_handle=table, keys=np.array([1]), values=[value])


def find(raw, table):
    return raw.LookupTableFindV2(table_handle=table, keys=np.int64(1), default_value=-1.0)


def table_find(raw, tf):
    table, insert = mutable_table(raw, tf)
    return lambda: insert(7.0), lambda: find(raw, table)


def table_size(raw, tf):
    table, insert = mutable_table(raw, tf)
    return lambda: insert(7.0), lambda: raw.LookupTableSizeV2(table_handle=table)


def table_export(raw, tf):
    table, insert = mutable_table(raw, tf)
    export = lambda: raw.LookupTableExportV2(  # noqa: E731
        table_handle=table, Tkeys=tf.int64, Tvalues=tf.float32
    )
    return lambda: insert(7.0), lambda: tf.reduce_sum(export()[1])


def table_remove(raw, tf):
    table, _ = mutable_table(raw, tf)

    def change():
        both = raw.LookupTableInsertV2(table_handle=table, keys=np.array([1, 2]), values=[1.0, 2.0])
        with tf.control_dependencies([both]):
            return raw.LookupTableRemoveV2(table_handle=table, keys=np.array([1]))

    return change, lambda: raw.LookupTableSizeV2(table_handle=table)


def table_import(raw, tf):
    table, _ = mutable_table(raw, tf)
    change = lambda: raw.LookupTableImportV2(table_handle=table, keys=np.array([1]), values=[5.0])  # noqa: E731
    return change, lambda: find(raw, table)


def dense_table(raw, tf):
    table = raw.MutableDenseHashTableV2(
        empty_key=np.int64(-1), deleted_key=np.int64(-2), value_dtype=tf.float32
    )
    return lambda: insert(raw, table, 3.0), lambda: find(raw, table)


def initialised_table(raw, tf):
    table = raw.HashTableV2(key_dtype=tf.int64, value_dtype=tf.float32)
    change = lambda: raw.InitializeTableV2(table_handle=table, keys=np.array([1]), values=[3.0])  # noqa: E731
    return change, lambda: find(raw, table)


def queue(raw, tf):
    queue = raw.FIFOQueueV2(component_types=[tf.float32])
    change = lambda: raw.QueueEnqueueV2(handle=queue, components=[4.0])  # noqa: E731
    return change, lambda: raw.QueueDequeueV2(handle=queue, component_types=[tf.float32])[0]


def queue_size(raw, tf):
    queue = raw.FIFOQueueV2(component_types=[tf.float32])
    change = lambda: raw.QueueEnqueueV2(handle=queue, components=[4.0])  # noqa: E731
    return change, lambda: raw.QueueSizeV2(handle=queue)


def reference_queue(raw, tf):
    queue = raw.FIFOQueue(component_types=[tf.float32])
    change = lambda: raw.QueueEnqueue(handle=queue, components=[4.0])  # noqa: E731
    return change, lambda: raw.QueueSize(handle=queue)


def stack(raw, tf):
    stack = raw.StackV2(max_size=tf.constant(4), elem_type=tf.float32)
    change = lambda: raw.StackPushV2(handle=stack, elem=6.0)  # noqa: E731
    return change, lambda: raw.StackPopV2(handle=stack, elem_type=tf.float32)


def tensor_array(raw, tf):
    handle, flow = raw.TensorArrayV3(size=tf.constant(2), dtype=tf.float32)
    change = lambda: raw.TensorArrayWriteV3(  # noqa: E731
        handle=handle, index=tf.constant(1), value=2.0, flow_in=flow
    )
    return change, lambda: raw.TensorArrayReadV3(
        handle=handle, index=tf.constant(1), flow_in=flow, dtype=tf.float32
    )


def barrier(raw, tf):
    barrier = raw.Barrier(component_types=[tf.float32], shapes=[[]])
    change = lambda: raw.BarrierInsertMany(  # noqa: E731
        handle=barrier, keys=tf.constant(["a"]), values=tf.constant([5.0]), component_index=0
    )
    return change, lambda: raw.BarrierReadySize(handle=barrier)


def accumulator(raw, tf):
    sums = raw.ResourceConditionalAccumulator(dtype=tf.float32, shape=[])
    change = lambda: raw.ResourceAccumulatorApplyGradient(  # noqa: E731
        handle=sums, local_step=tf.constant(0, tf.int64), gradient=4.0
    )
    return change, lambda: raw.ResourceAccumulatorNumAccumulated(handle=sums)


def reader(raw, tf):
    reader, queue = raw.IdentityReaderV2(), raw.FIFOQueueV2(component_types=[tf.string])

    def change():
        with tf.control_dependencies([raw.QueueEnqueueV2(handle=queue, components=["file"])]):
            return raw.ReaderReadV2(reader_handle=reader, queue_handle=queue)[0]

    return change, lambda: raw.ReaderNumRecordsProducedV2(reader_handle=reader)


def iterator(raw, tf):
    options = {"output_types": [tf.float32], "output_shapes": [[]]}
    iterator = raw.IteratorV2(shared_name="", container="", **options)

    def change():
        values = tf.data.Dataset.from_tensor_slices([3.0, 4.0])
        return raw.MakeIterator(dataset=values._variant_tensor, iterator=iterator)

    return change, lambda: raw.IteratorGetNext(iterator=iterator, **options)[0]


def staging_area(raw, tf):
    change = lambda: raw.Stage(values=[4.0], shared_name="area")  # noqa: E731
    return change, lambda: raw.StageSize(dtypes=[tf.float32], shared_name="area")


def staging_map(raw, tf):
    types = {"dtypes": [tf.float32], "shared_name": "map"}
    key = tf.constant(1, tf.int64)
    change = lambda: raw.MapStage(key=key, indices=[0], values=[4.0], **types)  # noqa: E731
    return change, lambda: raw.MapSize(**types)


def variable(raw, tf):
    handle = raw.VarHandleOp(dtype=tf.float32, shape=[])
    change = lambda: raw.AssignVariableOp(resource=handle, value=4.0)  # noqa: E731
    return change, lambda: raw.ReadVariableOp(resource=handle, dtype=tf.float32)


def reference_variable(raw, tf):
    variable = raw.VariableV2(shape=[], dtype=tf.float32)
    return lambda: raw.Assign(ref=variable, value=4.0), lambda: tf.identity(variable)


def generator(raw, tf):
    handle = raw.VarHandleOp(dtype=tf.int64, shape=[3])
    seed = tf.constant([1, 2, 3], tf.int64)

    def change():
        with tf.control_dependencies([raw.AssignVariableOp(resource=handle, value=seed)]):
            return raw.RngReadAndSkip(
                resource=handle, alg=tf.constant(1), delta=tf.constant(5, tf.uint64)
            )

    return change, lambda: tf.reduce_sum(raw.ReadVariableOp(resource=handle, dtype=tf.int64)) - 6


STATES = [
    table_find, table_size, table_export, table_remove, table_import, dense_table,
    initialised_table, queue, queue_size, reference_queue, stack, tensor_array, barrier,
    accumulator, reader, iterator, staging_area, staging_map, variable, reference_variable,
    generator,
]  # fmt: skip


def waited(tf, change, use):
    with tf.control_dependencies([change()]):
        return use()


def through_a_group(tf, change, use):
    return waited(tf, lambda: tf.group(tf.group(change())), use)


def through_a_value(tf, change, use):
    """The use waits for a number that is computed after the change."""

    def computed():
        with tf.control_dependencies([change()]):
            return tf.identity(tf.constant(3.0)) * 2.0

    return waited(tf, computed, use)


def between_two_uses(tf, change, use):
    """What comes first matters, although all three run at any rate."""
    first = use()
    with tf.control_dependencies([first]):
        done = change()
    with tf.control_dependencies([done]):
        return tf.cast(first, tf.float32) * 10.0 + tf.cast(use(), tf.float32)


def by_an_output(tf, change, use):
    """A run changes what the next run reads, because an output waits for the change."""
    result = use()
    with tf.control_dependencies([result]):
        done = change()
    with tf.control_dependencies([done]):
        return tf.identity(result)


def in_a_branch(tf, change, use):
    def branch():
        with tf.control_dependencies([change()]):
            return tf.constant(1.0)

    return waited(tf, lambda: tf.cond(tf.constant(True), branch, lambda: 2.0), use)


def in_a_function(tf, change, use):
    @tf.function(autograph=False)
    def function():
        with tf.control_dependencies([change()]):
            return tf.constant(1.0)

    return waited(tf, function, use)


def in_a_loop(tf, change, use):
    def body(turn):
        with tf.control_dependencies([change()]):
            return turn + 1

    return waited(tf, lambda: tf.while_loop(lambda turn: turn < 1, body, [0])[0], use)


REFERENCES = [reference_queue, reference_variable, barrier]  # no function takes one
FILLED_FIRST = [queue, stack, tensor_array, iterator, initialised_table, variable,
                reference_variable, generator]  # fmt: skip
LINKS = [waited, through_a_group, through_a_value, between_two_uses, by_an_output, in_a_branch,
         in_a_function, in_a_loop]  # fmt: skip
IN_FUNCTIONS = [in_a_branch, in_a_function, in_a_loop]
TWO_USES = [between_two_uses, by_an_output]


def stateful(state, link) -> Graph:
    with building([], ["out"]) as graph:
        idle = tf.constant(1.0, name="read")
        with tf.control_dependencies([tf.identity(idle, name="pure")]):
            idle = tf.identity(idle, name="idle")
        change, use = state(tf.raw_ops, tf)
        tf.add(tf.cast(link(tf, change, use), tf.float32), idle, name="out")
    graph.prune()
    return graph


def answers(graph: Graph) -> list[float | str]:
    """Return the output of two runs of one session."""
    session = Session(b"".join(graph.serialized()))
    try:
        return [float(session.run(["out"], {})[0]) for _ in range(2)]
    except GraphError as error:
        return [str(error)]


CASES = [
    pytest.param(state, link, id=f"{state.__name__}-{link.__name__}")
    for state in STATES
    for link in LINKS
    if not (state in REFERENCES and link in IN_FUNCTIONS)
    and not (state in FILLED_FIRST and link in TWO_USES)
]


@pytest.mark.parametrize(("state", "link"), CASES)
def test_state_keeps_its_order_and_nothing_else_does(state, link):
    graph = stateful(state, link)
    result = transform(graph, "remove_control_dependencies")
    assert result["idle"].control_inputs == ()
    expected = answers(graph)
    assert len(expected) == 2, expected
    assert answers(result) == expected


@pytest.mark.parametrize("state", [state for state in STATES if state is not queue])
def test_the_check_catches_an_order_that_is_lost(state):
    """Without an element, a queue would wait for ever."""
    graph = stateful(state, through_a_group)
    forced = transform(graph, "remove_control_dependencies(force=true)")
    assert not any(node.control_inputs for node in forced)
    assert answers(forced) != answers(graph)


def test_a_file_is_written_before_it_is_read(tmp_path):
    def file(raw, tf):
        name = tf.constant(str(tmp_path / "file"))
        return (
            lambda: raw.WriteFile(filename=name, contents="hello"),
            lambda: tf.strings.length(raw.ReadFile(filename=name)),
        )

    result = transform(stateful(file, through_a_group), "remove_control_dependencies")
    assert answers(result) == [6, 6]


def test_what_keeps_control_inputs_is_reported_once_an_op():
    graph = stateful(table_find, through_a_group)
    remove_control_dependencies(graph)
    assert sorted(graph.skipped) == [
        skipped(op, "order-kept", op=op, others="")
        for op in ("LookupTableFindV2", "LookupTableInsertV2")
    ]


def test_reads_alone_order_nothing():
    """TensorFlow lets the results of a function wait for all that read variables."""

    with building([], ["out"]) as graph:
        handle = tf.raw_ops.VarHandleOp(dtype=tf.float32, shape=[])
        read = tf.raw_ops.ReadVariableOp(resource=handle, dtype=tf.float32)
        with tf.control_dependencies([tf.group(read)]):
            tf.identity(read, name="out")
    result = transform(graph, "remove_control_dependencies")
    assert not any(node.control_inputs for node in result)


def test_init_ops_stay_whole_in_a_graph_without_outputs():
    with building() as graph:
        change, _ = variable(tf.raw_ops, tf)
        tf.group(change(), name="init")
    remove_control_dependencies(graph)
    assert len(graph["init"].control_inputs) == 1
