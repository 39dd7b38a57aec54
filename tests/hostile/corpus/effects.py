"""Sound graphs that would act on files, the network, Python or the process if they ran."""

from pathlib import Path

import numpy as np

from deploykit.transforms.ir.protos import GraphDef, NodeDef
from tests.hostile.case import EFFECT, Case, Statuses, canary, statuses
from tests.hostile.graphs import (
    BOOL,
    FLOAT,
    INT64,
    STRING,
    Func,
    Shape,
    Type,
    constant,
    floats,
    function,
    net,
    node,
    text,
    written_graph,
)  # fmt: skip

KIND = "effects"
CALL = {"Tin": [Type(FLOAT)], "Tout": [Type(FLOAT)]}


def writing(file: str) -> list[NodeDef]:
    """Return nodes that write a file."""
    return [
        text("file", file),
        text("content", "was run"),
        node("write", "WriteFile", "file", "content"),
    ]


def case(name: str, make, culprit: str = "'write'", right=EFFECT) -> Case:
    """Return a case of a graph that depends on the path of the file it would write."""

    def write(folder: Path) -> Path:
        made: GraphDef = make(str(canary(folder)))
        return written_graph(made)(folder)

    return Case(KIND, name, write, right=right, culprit=(culprit,))


def live(name: str, *nodes: NodeDef, right: Statuses = EFFECT) -> Case:
    """Return a case of nodes of which the output waits for `odd`."""
    return case(name, lambda _: net(*nodes, end="odd"), "'odd'", right)


def in_function(file: str):
    """Return a function that writes a file."""
    name, content, write = writing(file)
    write.input[:] = ["file:output:0", "content:output:0"]
    return function("writes", [name, content, write], results=[("y", FLOAT, "x")])


def called(file: str, op: str = "StatefulPartitionedCall") -> GraphDef:
    """Return a net that calls it."""
    return net(node("call", op, "x", f=Func("writes"), **CALL), functions=[in_function(file)],
               )  # fmt: skip


def called_by_name(file: str) -> GraphDef:
    """Return a net with a function as its op."""
    return net(node("call", "writes", "x"), functions=[in_function(file)])


def indirectly(file: str) -> GraphDef:
    """Return a net that calls a function that calls a function that names it in a While."""
    loop = node("loop", "While", "x", T=[Type(FLOAT)], cond=Func("never"), body=Func("writes"))
    outer = function("outer", [loop], results=[("y", FLOAT, "loop:output:0")])
    inner = node("inner", "PartitionedCall", "x", f=Func("outer"), **CALL)
    outermost = function("outermost", [inner], results=[("y", FLOAT, "inner:output:0")])
    false = constant("false", np.array(False))
    never = function("never", [false], results=[("y", BOOL, "false:output:0")])
    return net(node("call", "PartitionedCall", "x", f=Func("outermost"), **CALL),
               functions=[in_function(file), outer, outermost, never])  # fmt: skip


def in_branch(file: str, op: str = "If") -> GraphDef:
    """Return a net with a branch that is not taken and writes."""
    same = function("same", [], results=[("y", FLOAT, "x")])
    call = node("call", op, "false", "x", Tcond=Type(BOOL), then_branch=Func("writes"),
                else_branch=Func("same"), **CALL)  # fmt: skip
    return net(constant("false", np.array(False)), call, functions=[in_function(file), same])


def in_case(file: str) -> GraphDef:
    """Return a net with one of several branches that writes."""
    same = function("same", [], results=[("y", FLOAT, "x")])
    call = node("call", "Case", "which", "x", branches=[Func("same"), Func("writes")], **CALL)
    return net(constant("which", 0), call, functions=[in_function(file), same])


def in_old_branch(file: str) -> GraphDef:
    """Return a net with a branch of the old kind, alive, that writes."""
    name, content, _ = writing(file)
    return net(
        constant("true", np.array(True)), name, content,
        node("switch", "Switch", "content", "true", T=Type(STRING)),
        node("write", "WriteFile", "file", "switch:1"), constant("one", 1.0),
        floats("wait", "Identity", "one", "^write"), end="wait",
    )  # fmt: skip


FILE = text("file", "/etc/passwd")
NAMES = constant("names", np.array([b"/etc/passwd"], object))
EMPTY = text("none", "")
ZERO = constant("zero", np.array(0, np.int64))
OUT = {"output_types": [Type(STRING)], "output_shapes": [Shape(())]}
SAVED = {"dtypes": [Type(FLOAT)]}

DEAD = statuses(0, 3, check=(0, 3), inspect=0, label=(2, 3))
"""What would act is not needed: a command may leave it out instead."""

NOT_LOADED = statuses(2, 3, serve=(0, 2, 3), inspect=(0, 2))
"""TensorFlow may have no shape function for an op, and then loads no graph with it."""

CASES = (
    case("WriteFile, live", lambda file: net(*writing(file), end="write")),
    case("WriteFile, beside the output", lambda file: net(*writing(file)), right=DEAD),
    case("WriteFile in a function that is called", called),
    case("WriteFile in a PartitionedCall", lambda file: called(file, "PartitionedCall")),
    case("WriteFile in a function that is the op", called_by_name),
    case("WriteFile called by three functions and a While", indirectly),
    case("WriteFile in a branch of If", in_branch),
    case("WriteFile in a branch of StatelessIf", lambda file: in_branch(file, "StatelessIf")),
    case("WriteFile in a branch of Case", in_case),
    case("WriteFile in a branch of the old kind", in_old_branch),
    case("WriteFile in a function that nobody calls",
         lambda file: net(functions=[in_function(file)]),
         right=DEAD),
    live("ReadFile", FILE, node("odd", "ReadFile", "file")),
    live("MatchingFiles", text("file", "/etc/*"), node("odd", "MatchingFiles", "file")),
    live("Abort", node("odd", "Abort", error_msg="stop", exit_without_error=False)),
    live("Abort with status 0", node("odd", "Abort", error_msg="", exit_without_error=True)),
    live("ImmutableConst", node("odd", "ImmutableConst", dtype=Type(FLOAT), shape=Shape((2,)),
                                memory_region_name="/etc/passwd")),
    live("PyFunc", node("odd", "PyFunc", "x", token="pyfunc_0", Tin=[Type(FLOAT)],
                        Tout=[Type(FLOAT)])),
    live("EagerPyFunc", node("odd", "EagerPyFunc", "x", token="pyfunc_0", is_async=False,
                             Tin=[Type(FLOAT)], Tout=[Type(FLOAT)])),
    live("PyFuncStateless", node("odd", "PyFuncStateless", "x", token="pyfunc_0",
                                 Tin=[Type(FLOAT)], Tout=[Type(FLOAT)])),
    case("DebugIdentity to a file",
         lambda file: net(*[floats("odd", "DebugIdentity", "weights", device_name="",
                                     tensor_name="t", debug_urls=[f"file://{file}"],
                                     gated_grpc=False)], end="odd"), "'odd'"),
    case("DebugIdentityV2 to a file",
         lambda file: net(*[floats("odd", "DebugIdentityV2", "weights", tfdbg_context_id="",
                                     op_name="", output_slot=-1, tensor_debug_mode=4,
                                     debug_urls=[f"file://{file}"])], end="odd"), "'odd'"),
    case("DumpTensor",
         lambda file: net(*[floats("odd", "DumpTensor", "weights", log_dir_path=file,
         file_name="t", enabled=True,
                                     func_name="f", node_name="n")], end="odd"), "'DumpTensor'",
         right=NOT_LOADED),
    case("PrintV2 to a file",
         lambda file: net(*[text("line", "was run"), node(
             "odd", "PrintV2", "line", output_stream=f"file://{file}", end="")], end="odd"),
             "'odd'"),
    case("SaveV2",
         lambda file: net(*[text("prefix", file), *(
             constant(n, np.array([v], object)) for n, v in (("name", b"w"), ("slice", b""))),
             node("odd", "SaveV2", "prefix", "name", "slice", "weights", **SAVED)], end="odd"),
                  "'odd'"),
    case("Save",
         lambda file: net(*[text("prefix", file), constant("name", np.array([b"w"], object)),
                              node("odd", "Save", "prefix", "name", "weights",
                                   T=[Type(FLOAT)])], end="odd"), "'odd'"),
    live("RestoreV2", FILE, constant("name", np.array([b"w"], object)),
         constant("slice", np.array([b""], object)),
         node("odd", "RestoreV2", "file", "name", "slice", **SAVED)),
    live("MergeV2Checkpoints", NAMES, FILE,
         node("odd", "MergeV2Checkpoints", "names", "file", delete_old_dirs=True)),
    live("TFRecordDataset", NAMES, EMPTY, ZERO,
         node("odd", "TFRecordDataset", "names", "none", "zero")),
    live("TextLineDataset", NAMES, EMPTY, ZERO,
         node("odd", "TextLineDataset", "names", "none", "zero")),
    live("FixedLengthRecordDataset", NAMES, ZERO, constant("one_byte", np.array(1, np.int64)),
         node("odd", "FixedLengthRecordDataset", "names", "zero", "one_byte", "zero", "zero")),
    live("SqlDataset", text("driver", "sqlite"), text("source", "/tmp/x.db"),
         text("query", "select 1"),
         node("odd", "SqlDataset", "driver", "source", "query", **OUT)),
    live("WholeFileReaderV2", node("odd", "WholeFileReaderV2", container="", shared_name=""),
         right=statuses(3, quantize=(2, 3), sensitivity=(2, 3))),  # as it cannot be frozen
    live("table from a text file", FILE,
         node("table", "HashTableV2", container="", shared_name="", key_dtype=Type(STRING),
              value_dtype=Type(INT64), use_node_name_sharing=False),
         node("odd", "InitializeTableFromTextFileV2", "table", "file", key_index=-2,
              value_index=-1, vocab_size=-1, delimiter="\t", offset=0)),
    live("summary writer", text("folder", "/tmp/summaries"), constant("n", 1),
         node("writer", "SummaryWriter", shared_name="w", container=""),
         node("odd", "CreateSummaryFileWriter", "writer", "folder", "n", "n", "file_suffix"),
         text("file_suffix", ".x")),
    case("RpcClient", lambda _: net(
         text("address", "localhost:1"), constant("seconds", np.array(1, np.int64)),
         node("odd", "RpcClient", "address", "seconds", shared_name="",
              list_registered_methods=False), end="odd"), "'RpcClient'", right=NOT_LOADED),
    live("DataServiceDatasetV2",
         *(text(n, "x") for n in ("mode", "address", "protocol", "job")), ZERO,
         constant("consumer", np.array(0, np.int64)), constant("consumers", np.array(1, np.int64)),
         constant("most", np.array(1, np.int64)),
         node("counter", "DummyIterationCounter"),
         node("odd", "DataServiceDatasetV2", "zero", "mode", "address", "protocol", "job",
              "consumer", "consumers", "most", "counter", task_refresh_interval_hint_ms=-1,
              data_transfer_protocol="", target_workers="AUTO", cross_trainer_cache_options="",
              **OUT)),
    live("CollectiveReduce that waits for ever",
         floats("odd", "CollectiveReduce", "weights", group_size=2, group_key=1, instance_key=1,
                merge_op="Add", final_op="Id", subdiv_offsets=[0])),
    live("_Recv that waits for ever",
         node("odd", "_Recv", tensor_type=Type(FLOAT), tensor_name="t", send_device="/cpu:0",
              send_device_incarnation=1, recv_device="/cpu:0", client_terminated=False)),
    live("WorkerHeartbeat", text("request", ""), node("odd", "WorkerHeartbeat", "request")),
    live("XlaCallModule", node("odd", "XlaCallModule", "x", version=9, module=b"\xff" * 20,
                               Sout=[Shape((2, 3))], Tout=[Type(FLOAT)], Tin=[Type(FLOAT)])),
    live("DecodeProtoV2 with a descriptor in a file",
         node("odd", "DecodeProtoV2", "names", message_type="m", field_names=["f"],
              output_types=[Type(STRING)], descriptor_source="/etc/passwd",
              message_format="binary", sanitize=False), NAMES),
)  # fmt: skip
