"""The first stages write no graph that was not compared; calibration data replace random values."""

import numpy as np
import pytest

from deploykit.api.comparison import READ_BY
from deploykit.importers.model_source import ModelSource
from deploykit.shipping.ship_options import ShipOptions
from deploykit.shipping.shipment import FROZEN, OPTIMIZED_FILE, Shipment
from deploykit.shipping.stages.graphs import calibrate, check, optimize, quantize, verify
from deploykit.transforms.common.errors import GraphError, UnverifiedError
from deploykit.transforms.ir.node import Node
from tests.support import Containing, because, build, raises, random, showing, shows
from tests.transforms.fake_quant_nets import net
from tests.transforms.test_fake_quants import residual

pytestmark = pytest.mark.usefixtures("in_process")
FITTING = {"x": 5 + abs(random(8, 3))}


def shipped_from(source, folder, **options) -> Shipment:
    how = ShipOptions(budget=1.0, **options)
    return Shipment(source=source, how=how, name="m", output=folder, folder=folder)


def shipment(folder, **options) -> Shipment:
    """Return the shipment of a model that only runs on values above 4."""

    def body():
        import tensorflow as tf

        x = tf.compat.v1.placeholder(tf.float32, [None, 3], name="x")
        with tf.control_dependencies([tf.raw_ops.Assert(condition=x[0, 0] > 4, data=[x])]):
            tf.matmul(x, random(3, 4), name="out")

    model = build(body, ["x"], ["out"])
    (folder / FROZEN).parent.mkdir(exist_ok=True)
    return shipped_from(ModelSource(model), folder, **options)


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("options", "is_verified"),
    [
        ({"calibration": FITTING}, True),
        ({"input_range": (5.0, 9.0)}, True),
        ({"allow_unverified": True}, False),
    ],
)
def test_samples_or_a_range_make_the_comparison_possible(tmp_path, options, is_verified):
    shipped = shipment(tmp_path, **options)
    check.run(shipped)
    found = optimize.run(shipped)
    assert found.document["verification"]["verified"] == is_verified
    assert ({"calibration", *READ_BY} <= {*found.used}) == ("calibration" in options)
    assert (tmp_path / OPTIMIZED_FILE).exists()
    assert verify.run(shipped).document["verified"] == is_verified


@pytest.mark.parametrize("names", [["thing"] * 8, ["a", "b", "c", "d"] * 2])
def test_data_for_the_comparison_may_be_of_other_classes(tmp_path, names, caplog):
    labels = tmp_path / "labels.txt"
    labels.write_text("d\nc\nb\na\n")
    data = {**FITTING, "labels": np.array(names)}
    shipped = shipment(tmp_path, calibration=data, labels=str(labels))
    check.run(shipped)
    found = optimize.run(shipped)
    assert found.document["verification"]["verified"]
    assert shows(caplog.text, "class-unknown", name="thing") == ("thing" in names)
    assert shipped.opened(FROZEN).about.labels == ("d", "c", "b", "a")


def test_without_a_comparison_nothing_is_written(tmp_path):
    options = Containing("--calibration", "--input-range", "--allow-unverified").pattern
    with pytest.raises(UnverifiedError, match=options):
        check.run(shipment(tmp_path))
    assert not (tmp_path / FROZEN).exists()


def test_an_op_of_no_tensorflow_matters_where_the_outputs_need_it(tmp_path):
    graph = shipment(tmp_path).source.model
    graph.add(Node("u", "Mine", ("out",)))
    file = tmp_path / "own.pb"
    file.write_bytes(b"".join(graph.serialized()))
    source = ModelSource(str(file), outputs=["out"])
    shipped = shipped_from(source, tmp_path, input_range=(5.0, 9.0))
    document = check.run(shipped).document
    assert document["outputs"] == ["out"]
    assert document["graphs"][0]["warnings"]
    shipped.source = ModelSource(str(file))
    with raises(GraphError, "graph-invalid", problem=showing("custom-op", op="Mine")):
        check.run(shipped)


@pytest.mark.slow
def test_a_quantization_aware_model_needs_no_calibration(tmp_path):
    model = net(residual, ("out/out",))
    (tmp_path / FROZEN).parent.mkdir(exist_ok=True)
    shipped = shipped_from(ModelSource(model), tmp_path)
    assert quantize.left_out(shipped) == "int8 needs --calibration DATA"  # as far as is known
    check.run(shipped)
    optimize.run(shipped)
    assert calibrate.left_out(shipped) == because("scales-stated")
    assert quantize.left_out(shipped) == ""
    found = quantize.run(shipped).document
    assert (found["result"], found["int8_layers"], found["all_layers"]) == ("int8", 4, 4)
