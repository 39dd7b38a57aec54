"""Generated files pass the checks that others wrote for them; each check refuses a broken file."""

import json
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import jsonschema
import pytest
import yaml
from google.protobuf import text_format

from deploykit.benchmarking.run_config import RunConfig
from deploykit.exporting.manifests import KINDS, Deployment, dns_label, manifests, names
from deploykit.serving.lifecycle.model_config import ModelSettings, read_models
from deploykit.serving.protocol.protos import (
    Batching,
    ConfigError,
    ModelServerConfig,
    read_batching,
)
from deploykit.serving.rest.paths import V2_PROBES
from deploykit.serving.server.config_files import Monitoring, read_monitoring, read_tls
from deploykit.serving.server.server_flags import ServerFlags
from deploykit.transforms.ir.protos import without_tensorflow_start
from tests.support import assert_golden

PLAIN = Deployment(models=["fashion"], version=3, cores=2, memory=768, deploykit="0.1.0")
TUNED = replace(
    PLAIN,
    models=["Half_plus.two", "b"],
    settings=RunConfig(batch=16, threads=(1, 4), executor="caller"),
    batching=True,
    session=True,
    environment={"TF_ENABLE_ONEDNN_OPTS": "1", "MALLOC_MMAP_MAX_": "0"},
)
BOTH = pytest.mark.parametrize("deployment", [PLAIN, TUNED], ids=["plain", "tuned"])
KSERVE = Path(__file__).parent / "kserve.schema.json"
BIN = Path(sys.executable).parent


@pytest.mark.golden("manifests/{name}")
@pytest.mark.parametrize("name", names(KINDS, True, True, True))
def test_what_is_written(name):
    deployment = replace(TUNED, openvino=name == "Dockerfile.openvino", openvino_alone=True)
    assert_golden(manifests(deployment, KINDS)[name])


def test_files_go_with_what_was_asked_for():
    config = {"models.config", "monitoring.config", "ssl.config"}
    assert set(manifests(PLAIN, ["config"])) == config
    assert set(manifests(PLAIN, ["kserve"])) == {*config, "kserve.yaml"}
    assert set(manifests(TUNED, [])) == {"batching.config"}
    more = {"batching.config", "session.config"}
    assert set(manifests(TUNED, KINDS)) - set(manifests(PLAIN, KINDS)) == more


@pytest.mark.parametrize(
    ("name", "label"),
    [("a", "a"), ("Half_plus.two", "half-plus-two"), ("1a", "model-1a"), ("__", "model")],
)
def test_names_in_kubernetes(name, label):
    assert dns_label(name) == label
    assert len(dns_label(name * 100)) < 60


@BOTH
def test_models_config(deployment):
    text = manifests(deployment, ["config"])["models.config"]
    found = text_format.Parse(text, ModelServerConfig()).model_config_list.config
    assert [(each.name, each.base_path) for each in found] == [
        (name, f"/models/{name}") for name in deployment.models
    ]
    with pytest.raises(text_format.ParseError, match="base_paths"):
        text_format.Parse(text.replace("base_path", "base_paths"), ModelServerConfig())


def test_a_session_whose_ops_run_in_turn():
    """TensorFlow's own proto reads the file; each server gets the flags that it has."""
    with without_tensorflow_start():
        from tensorflow.core.protobuf.config_pb2 import ConfigProto
    files = manifests(TUNED, KINDS)
    found = text_format.Parse(files["session.config"], ConfigProto())
    assert found == ConfigProto(
        experimental=ConfigProto.Experimental(executor_type="SINGLE_THREADED_EXECUTOR")
    )
    flag = "--tensorflow_session_config_file=/models/session.config"
    for name in ("Dockerfile", "kubernetes.yaml"):
        assert flag in files[name]
        assert "--tensorflow_inter_op_parallelism=4" in files[name]
    for name in ("Dockerfile.deploykit", "kserve.yaml"):
        assert "session.config" not in files[name]
        assert "--tensorflow_inter_op_parallelism=-1" in files[name]
    own = replace(PLAIN, settings=RunConfig(executor="caller"))
    for deployment in (own, replace(own, session=True)):
        assert "inter_op" not in manifests(deployment, KINDS)["Dockerfile"]
    assert "session" not in "".join(manifests(own, KINDS).values())


def test_an_image_without_tensorflow_for_openvino_alone():
    assert "Dockerfile.openvino" not in manifests(replace(PLAIN, openvino=True), KINDS)
    alone = replace(TUNED, openvino=True, openvino_alone=True)
    files = manifests(alone, KINDS)
    image, other = files["Dockerfile.openvino"], files["Dockerfile.deploykit"]
    assert "[openvino]'" in image
    assert "[tf,openvino]'" in other
    same = image.index("COPY", image.index("RUN"))
    assert other.endswith(image[same:])
    assert "USER 1000" in image[same:]
    served = files["kserve.yaml"]
    for name in (image, other):
        assert "-deploykit:3 ." in name
    assert "-deploykit:3" in served


REST_OF_END = 2  # seconds
OF_KUBERNETES = 30  # seconds that a pod has to end where nothing else is said

READ_AS = {
    "models.config": (read_models, (ModelSettings("fashion", Path("/models/fashion")),)),
    "batching.config": (read_batching, Batching(32, 0, 8, 2)),
    "monitoring.config": (read_monitoring, Monitoring(True, "/monitoring/prometheus/metrics")),
}


@pytest.mark.parametrize("name", READ_AS)
def test_our_server_reads_them(name, tmp_path):
    read, wanted = READ_AS[name]
    path = tmp_path / name
    text = manifests(replace(PLAIN, batching=True), ["config"])[name]
    path.write_text(text)
    assert read(path) == wanted
    field = {"models.config": "name:", "batching.config": "value:"}.get(name, "path:")
    path.write_text(text.replace(field, "nothing:"))
    with pytest.raises(ConfigError):
        read(path)


def test_the_template_for_tls(tmp_path):
    path = tmp_path / "ssl.config"
    text = manifests(PLAIN, ["config"])["ssl.config"]
    path.write_text(text)
    found = read_tls(path)
    assert found.server_key.startswith("-----BEGIN PRIVATE KEY-----\n")
    assert found.server_cert.endswith("-----END CERTIFICATE-----\n")
    assert not found.client_verify
    path.write_text(text.replace("# custom_ca", "custom_ca"))
    assert read_tls(path).custom_ca
    path.write_text(text.replace("server_key", "key"))
    with pytest.raises(ConfigError):
        read_tls(path)


def kubernetes(text: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Ask kubernetes-validate, which has the schemas of Kubernetes itself."""
    path = folder / "kubernetes.yaml"
    path.write_text(text)
    return subprocess.run(
        [BIN / "kubernetes-validate", "--strict", path], capture_output=True, text=True, check=False
    )


@pytest.mark.sampled
@BOTH
def test_kubernetes(deployment, tmp_path):
    text = manifests(deployment, ["kubernetes"])["kubernetes.yaml"]
    done = kubernetes(text, tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    kinds = ["Deployment", "Service", "HorizontalPodAutoscaler", "PodDisruptionBudget"]
    found = list(yaml.safe_load_all(text))
    assert [each["kind"] for each in found] == kinds
    for kind in kinds:
        assert f"{kind.lower()}/{deployment.app}" in done.stdout + done.stderr
    pods = found[0]["spec"]["template"]
    ports = {port["name"] for port in pods["spec"]["containers"][0]["ports"]}
    for selecting in found[0]["spec"], found[3]["spec"]:
        assert selecting["selector"]["matchLabels"] == pods["metadata"]["labels"]
    assert found[1]["spec"]["selector"] == pods["metadata"]["labels"]
    assert {port["targetPort"] for port in found[1]["spec"]["ports"]} == ports


def test_whoever_ends_our_server_grants_the_time_that_it_takes():
    found = manifests(PLAIN, KINDS)
    before, drain = ServerFlags.lame_duck_seconds, ServerFlags.drain_seconds
    pod = yaml.safe_load_all(found["kubernetes.yaml"])
    pod = next(pod)["spec"]["template"]["spec"]
    [container] = pod["containers"]
    sleep = int(container["lifecycle"]["preStop"]["exec"]["command"][1])
    assert sleep + before + drain + REST_OF_END <= pod["terminationGracePeriodSeconds"]
    [service] = yaml.safe_load(found["compose.yaml"])["services"].values()
    assert before + drain + REST_OF_END <= int(service["stop_grace_period"].rstrip("s"))
    runtime = next(yaml.safe_load_all(found["kserve.yaml"].replace("{{.Name}}", "name")))
    [container] = runtime["spec"]["containers"]
    [shorter] = [each for each in container["args"] if each.startswith("--drain_seconds=")]
    assert before + float(shorter.partition("=")[2]) + REST_OF_END <= OF_KUBERNETES


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("minReplicas: 2", 'minReplicas: "two"'),
        ("containerPort: 8500", "containerPort: grpc"),
        ("terminationGracePeriodSeconds", "terminationGraceSeconds"),
        ("maxUnavailable: 1\n  selector", "maximumUnavailable: 1\n  selector"),
        ("clusterIP: None", "clusterIp: None"),
    ],
)
def test_broken_kubernetes(old, new, tmp_path):
    text = manifests(PLAIN, ["kubernetes"])["kubernetes.yaml"]
    assert text.count(old) == 1
    assert kubernetes(text.replace(old, new), tmp_path).returncode != 0


def hadolint(text: str, folder: Path) -> subprocess.CompletedProcess[str]:
    path = folder / "Dockerfile"
    path.write_text(text)
    return subprocess.run([BIN / "hadolint", path], capture_output=True, text=True, check=False)


@pytest.mark.sampled
@BOTH
@pytest.mark.parametrize("name", ["Dockerfile", "Dockerfile.deploykit", "Dockerfile.openvino"])
def test_dockerfiles(deployment, name, tmp_path):
    text = manifests(replace(deployment, openvino_alone=True), ["docker"])[name]
    done = hadolint(text, tmp_path)
    assert (done.returncode, done.stdout) == (0, "")
    copied = [json.loads(line[5:]) for line in text.splitlines() if line.startswith("COPY")]
    there = {*names(["docker"], deployment.batching, deployment.session), *deployment.models}
    own = {each for *sources, _ in copied for each in sources} - {
        "tf_deploykit-0.1.0-py3-none-any.whl"
    }
    assert own <= there, "what is copied lies in the folder"
    assert "ssl.config" not in own, "no key lands in an image"


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("name", "old", "new", "said"),
    [
        ("Dockerfile", ":2.20.0", "", "DL3006"),
        ("Dockerfile", "USER 1000", "USER root", "DL3002"),
        ("Dockerfile", "COPY", "COPI", "unexpected"),
        ("Dockerfile.deploykit", " --no-cache-dir", "", "DL3042"),
    ],
)
def test_broken_dockerfiles(name, old, new, said, tmp_path):
    text = manifests(PLAIN, ["docker"])[name]
    assert old in text
    done = hadolint(text.replace(old, new), tmp_path)
    assert done.returncode != 0
    assert said in done.stdout


def compose(text: str, folder: Path) -> subprocess.CompletedProcess[str]:
    (folder / "compose.yaml").write_text(text)
    command = ["docker-compose", "-f", "compose.yaml", "config"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


needs_compose = pytest.mark.skipif(
    shutil.which("docker-compose") is None, reason="docker-compose is not installed"
)


@needs_compose
@BOTH
def test_compose(deployment, tmp_path):
    done = compose(manifests(deployment, ["docker"])["compose.yaml"], tmp_path)
    assert done.returncode == 0, done.stderr
    (service,) = yaml.safe_load(done.stdout)["services"].values()
    assert service["image"] == f"{deployment.app}:3"


@needs_compose
@pytest.mark.parametrize(
    ("old", "new"), [("read_only:", "readonly:"), ("restart: unless-stopped", "restart: [1]")]
)
def test_broken_compose(old, new, tmp_path):
    text = manifests(PLAIN, ["docker"])["compose.yaml"]
    assert old in text
    assert compose(text.replace(old, new), tmp_path).returncode != 0


def kserve_errors(text: str) -> list[str]:
    """Compare with what KServe's definitions say of the fields that are written."""
    schema = json.loads(KSERVE.read_text())
    validator = jsonschema.Draft202012Validator(schema)
    return [e.message for each in yaml.safe_load_all(text) for e in validator.iter_errors(each)]


@BOTH
def test_kserve(deployment):
    text = manifests(deployment, ["kserve"])["kserve.yaml"]
    assert kserve_errors(text) == []
    runtime, *services = yaml.safe_load_all(text)
    assert runtime["spec"]["containers"][0]["args"][0] == "--model_name={{.Name}}"
    models = sorted(deployment.models)
    assert [each["metadata"]["name"] for each in services] == list(map(dns_label, models))
    for each in services:
        model = each["spec"]["predictor"]["model"]
        assert model["runtime"] == runtime["metadata"]["name"]
        assert model["protocolVersion"] == "v2"
        assert {"v1", "v2"} <= {*runtime["spec"]["protocolVersions"]}


def test_kserve_probes_what_our_server_answers():
    runtime = next(yaml.safe_load_all(manifests(PLAIN, ["kserve"])["kserve.yaml"]))
    [container] = runtime["spec"]["containers"]
    [port] = container["ports"]
    assert f"--rest_api_port={port['containerPort']}" in container["args"]
    probes = {name: each for name, each in container.items() if name.endswith("Probe")}
    paths = {name: each["httpGet"]["path"] for name, each in probes.items()}
    assert paths["readinessProbe"] == "/v2/health/ready"
    assert paths["livenessProbe"] == "/v2/health/live"
    assert {*paths.values()} <= set(V2_PROBES)
    assert {each["httpGet"]["port"] for each in probes.values()} == {port["containerPort"]}


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("minReplicas: 1", 'minReplicas: "one"'),
        ("modelFormat:", "format:"),
        ("storageUri: ", "storageURI: "),
        ("pvc://", "models at "),
        ("protocolVersion: v2", "protocolVersion: v3"),
        ("path: /v2/health/ready", "url: /v2/health/ready"),
        ("readinessProbe:", "readyProbe:"),
        ("kserve-container", "server"),
        ("serving.kserve.io/v1beta1", "serving.kserve.io/v1"),
    ],
)
def test_broken_kserve(old, new):
    text = manifests(PLAIN, ["kserve"])["kserve.yaml"]
    assert old in text
    assert kserve_errors(text.replace(old, new))


def test_settings_arrive():
    found = manifests(TUNED, KINDS)
    for name in ("Dockerfile", "Dockerfile.deploykit", "kubernetes.yaml", "kserve.yaml"):
        assert "--tensorflow_intra_op_parallelism=1" in found[name]
        at_once = 4 if name in ("Dockerfile", "kubernetes.yaml") else -1
        assert f"--tensorflow_inter_op_parallelism={at_once}" in found[name]
    for name in ("Dockerfile", "Dockerfile.deploykit"):
        assert 'ENV TF_ENABLE_ONEDNN_OPTS="1"' in found[name]
        assert "--enable_batching" in found[name]
    assert "batching" not in "".join(manifests(PLAIN, KINDS).values())
