"""Which graph of a SavedModel is meant: by its tags, by none, or as the only one that can run."""

import pytest

import deploykit
from deploykit.cli.value_types import Value
from deploykit.cli.value_types import tags as parsed_tags
from deploykit.transforms.common.errors import GraphError
from tests.support import Containing, raises, says, shows

pytestmark = pytest.mark.usefixtures("in_process")


def saved(folder, *graphs: tuple[str, ...], signatures: tuple[str, ...] = ("default",)) -> str:
    """Write a SavedModel as TF1 Hub does; each graph's output bears the place of its tags."""
    import tensorflow.compat.v1 as tf

    builder = tf.saved_model.Builder(str(folder / "model"))
    for place, tags in enumerate(graphs):
        with tf.Graph().as_default(), tf.Session() as session:
            x = tf.placeholder(tf.float32, [None, 3], name="x")
            w = tf.get_variable("w", [3, 2], initializer=tf.ones_initializer())
            y = tf.matmul(x, w, name=f"y{place}")
            side = tf.saved_model.predict_signature_def({"x": x}, {"y": y})
            session.run(tf.global_variables_initializer())
            add = builder.add_meta_graph if place else builder.add_meta_graph_and_variables
            leading = () if place else (session,)
            add(*leading, list(tags), dict.fromkeys(signatures, side))
    builder.save()
    return str(folder / "model")


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("graphs", "output", "named", "level"),
    [
        ([()], "y0", "without tags", "INFO"),
        ([("train",), ()], "y1", "without tags", "INFO"),
        ([("train",)], "y0", "tagged 'train'", "WARNING"),
        ([("eval",)], "y0", "tagged 'eval'", "WARNING"),
        ([("train",), ("tpu",)], "y0", "tagged 'train'", "WARNING"),
        ([("train",), ("eval",)], "y1", "tagged 'eval'", "WARNING"),
        ([("train",), ("serve", "tpu")], "y1", "tagged 'serve,tpu'", "WARNING"),
        ([("serve", "train"), ()], "y0", "tagged 'serve,train'", "WARNING"),
        ([("train",), ("gpu", "serve"), ("serve", "tpu")], "y1", "tagged 'gpu,serve'", "INFO"),
        ([("eval",), ("gpu", "serve")], "y1", "tagged 'gpu,serve'", "INFO"),
        ([(), ("serve",)], "y1", "", ""),
    ],
)
def test_the_only_graph_that_can_run_is_used(graphs, output, named, level, tmp_path, caplog):
    caplog.set_level("INFO", "deploykit")
    graph = deploykit.open_model(saved(tmp_path, *graphs)).graph
    assert graph.outputs == (output,)
    said = [(each.levelname, each.message) for each in caplog.records if "tag" in each.message]
    assert said == ([(level, Containing("'serve'", named))] if named else [])


def test_of_graphs_with_the_same_tags_the_first_counts_as_in_tensorflow(tmp_path, caplog):
    path = saved(tmp_path, ("gpu", "serve"), ("serve", "gpu"), ("serve",), ("serve",), ("serve",))
    assert loaded_outputs(path, ["serve"]) == deploykit.freeze(path).outputs == ("y2",)
    assert shows(caplog.text, "tags-ambiguous", count=3, tags=Containing("serve"))
    caplog.clear()
    tags = ["serve", "gpu"]
    assert loaded_outputs(path, tags) == deploykit.freeze(path, tags=tags).outputs == ("y0",)
    assert "2 graphs" in caplog.text


def loaded_outputs(path: str, tags: list[str]) -> tuple[str, ...]:
    """Return the output of the graph that TensorFlow loads."""
    import tensorflow.compat.v1 as tf

    with tf.Graph().as_default(), tf.Session() as session:
        meta = tf.saved_model.load(session, tags, path)
        (signature,) = (each for name, each in meta.signature_def.items() if name == "default")
        return tuple(each.name.removesuffix(":0") for each in signature.outputs.values())


def test_graphs_are_named_by_their_tags_or_by_none(tmp_path):
    path = saved(tmp_path, ("a",), ("b",), ())
    assert deploykit.freeze(path, tags=[""]).outputs == ("y2",)
    assert deploykit.freeze(path, tags=["b"]).outputs == ("y1",)
    with pytest.raises(GraphError, match=says("saved-model-tags-ambiguous")):
        deploykit.freeze(path)
    with raises(GraphError, "saved-model-tags-missing", wanted="the tags c"):
        deploykit.freeze(path, tags=["c"])


def test_a_graph_without_tags_is_missed_by_name(tmp_path):
    with raises(GraphError, "saved-model-tags-missing", wanted="no tags", known=["train"]):
        deploykit.freeze(saved(tmp_path, ("train",)), tags=[""])


def test_the_default_signature_of_a_hub_module(tmp_path):
    path = saved(tmp_path, (), signatures=("default", "image_feature_vector"))
    assert list(deploykit.open_model(path).signatures) == ["default"]


@pytest.mark.parametrize(("text", "tags"), [("", ("",)), ("gpu, serve", ("gpu", "serve"))])
def test_an_empty_text_names_the_graph_without_tags(text, tags):
    assert Value("TAGS", parsed_tags).convert(text, None, None) == tags
    assert Value("TAGS", parsed_tags).convert((), None, None) == ()
