"""Each stateful op of TensorFlow is filled, refused or holds nothing, so that none is forgotten."""

from deploykit.transforms.ir.ops import op_defs
from deploykit.transforms.ir.stateful_ops import (
    FILLED_OPS,
    REFUSED,
    contents_of,
    is_update,
    state_held_by,
)


def test_what_becomes_of_its_contents_is_said():
    stateful = [name for name, each in op_defs().items() if each.is_stateful]
    known = ("filled", "refused", "nothing")
    missing = [op for op in stateful if contents_of(op) not in known]
    assert not missing, "add these to transforms/core/state"


def test_an_op_that_is_new_is_seen(monkeypatch):
    """No wildcard covers what gives a handle."""
    from deploykit.transforms.ir import stateful_ops

    for name, like in (("RandomStoreV9", "FIFOQueueV2"), ("NewDatasetHandle", "HashTableV2")):
        monkeypatch.setattr(
            stateful_ops, "op_defs", lambda name=name, like=like: {name: op_defs()[like]}
        )
        assert contents_of.__wrapped__(name) is None


def test_the_lists_name_ops_that_there_are_and_each_once():
    refused = [op for ops in REFUSED.values() for op in ops.split()]
    assert set(refused) | FILLED_OPS <= set(op_defs())
    assert len(set(refused)) == len(refused)
    assert FILLED_OPS.isdisjoint(refused)
    assert all(state_held_by(op) for op in refused)


def test_what_gives_a_handle_is_in_a_list():
    """An op that makes a resource and is stateful holds something."""
    assert contents_of("MutableDenseHashTableV2") == "filled"
    assert contents_of("FIFOQueueV2") == "refused"
    assert contents_of("TensorArrayV3") == "nothing"
    assert contents_of("Conv2D") == "nothing"


def test_updates_work_on_what_others_hold():
    assert is_update("AssignVariableOp")
    assert is_update("ResourceScatterNdUpdate")
    assert is_update("LookupTableInsertV2")
    assert not is_update("ScatterNd")
    assert not is_update("ReadVariableOp")
    assert not is_update("StatelessRandomUniform")
