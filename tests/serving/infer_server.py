"""A server of models for the Open Inference Protocol, over gRPC and HTTP."""

from pathlib import Path
from types import SimpleNamespace

from tests.serving.echo_model import echo
from tests.serving.served import Served, free_port
from tests.serving.small_models import half_plus

METRICS = "/metrics"


def named(folder: Path, *names: str) -> Path:
    """Write a model whose signatures have these names; return its folder."""
    import tensorflow as tf

    module = tf.Module()
    module.same = tf.function(lambda x: {"y": x}, [tf.TensorSpec([None], name="x")])
    function = module.same.get_concrete_function()
    tf.saved_model.save(module, str(folder / "1"), dict.fromkeys(names, function))
    return folder


def infer_server(base: Path) -> SimpleNamespace:
    """Start a server of `echo`, `only`, `several`, and `half_plus_two` with a label."""
    half_plus(half_plus(base / "half_plus_two", 2), 3, version=124)
    echo(base / "echo")
    named(base / "only", "other")
    named(base / "several", "a", "b")
    lines = [
        f'config {{ name: "{name}" base_path: "{base / name}" model_platform: "tensorflow" {more}}}'
        for name, more in {
            "echo": "", "only": "", "several": "",
            "half_plus_two": 'model_version_policy { all {} } version_labels '
                             '{ key: "stable" value: 123 }',
        }.items()
    ]  # fmt: skip
    config, monitoring = base / "models.config", base / "monitoring.config"
    config.write_text(f"model_config_list {{ {' '.join(lines)} }}")
    monitoring.write_text(f'prometheus_config {{ enable: true path: "{METRICS}" }}')
    log = base / "log"
    server = Served(
        f"--model_config_file={config}", f"--rest_api_port={free_port()}",
        "--allow_version_labels_for_unavailable_models", "--rest_api_enable_cors_support",
        f"--monitoring_config_file={monitoring}", f"--access_log={log}",
    )  # fmt: skip
    return SimpleNamespace(server=server, log=log)
