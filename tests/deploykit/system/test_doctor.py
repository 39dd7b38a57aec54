"""What the doctor finds is what is there, and its last sentence names the first thing to do."""

import json
import shutil
from importlib import metadata
from pathlib import Path

import numpy as np
import pytest

from deploykit.rendering.machine_lines import lines
from deploykit.rendering.tables import drawn
from deploykit.system import doctor
from deploykit.system.doctor import LIBRARIES, examine, gpu_refusal, load, refusal, xla_tools
from tests.deploykit.conftest import refusals
from tests.support import assert_golden, shows

TENSORFLOW = {"gpus": [], "cuda_build": True, "cuda_version": "12.5.1"}
DRIVER = {"status": 0, "cuda": "12.8", "devices": 1}
LOADED = dict.fromkeys(LIBRARIES)
WHEEL = {"wheel": "tensorflow", "tensorflow": "2.21.0"}
MISSING = "cannot open shared object file"


NO_GPU = {
    "built without CUDA": {
        "tensorflow": {**TENSORFLOW, "cuda_build": False},
        "installed": {"wheel": "tensorflow-cpu", "tensorflow": "2.21.0"},
        "driver": {"missing": MISSING},
    },
    "no driver, and devices are hidden": {
        "driver": {"missing": MISSING},
        "libraries": dict.fromkeys(LIBRARIES, MISSING),
        "variables": {"CUDA_VISIBLE_DEVICES": "-1"},
    },
    "hidden devices": {
        "driver": {**DRIVER, "status": 100},
        "variables": {"CUDA_VISIBLE_DEVICES": "-1"},
    },
    "an empty list of devices": {
        "driver": {**DRIVER, "status": 100},
        "variables": {"CUDA_VISIBLE_DEVICES": ""},
    },
    "a driver that fails": {
        "driver": {**DRIVER, "status": 999, "devices": 0},
        "variables": {"CUDA_VISIBLE_DEVICES": "0"},
    },
    "a driver that dies": {"driver": {"error": "TensorFlow died of SIGSEGV"}},
    "no device": {"driver": {**DRIVER, "devices": 0}},
    "an old driver": {"driver": {**DRIVER, "cuda": "11.4"}},
    "a missing library": {"libraries": LOADED | {"libcudnn.so.9": MISSING}},
    "missing libraries": {
        "libraries": LOADED | dict.fromkeys(("libcudnn.so.9", "libcufft.so.11"), MISSING)
    },
    "a TensorFlow that does not start": {"tensorflow": {"error": "no such symbol"}},
    "an unknown cause": {},
}


@pytest.mark.golden("doctor_gpu")
def test_why_there_is_no_gpu():
    """The sentence names the first problem to fix."""
    sentences = []
    gpu = {"tensorflow": {**TENSORFLOW, "gpus": [{"name": "/physical_device:GPU:0"}]}}
    for case, change in NO_GPU.items():
        found = {"tensorflow": TENSORFLOW, "driver": DRIVER, "libraries": LOADED, "variables": {},
                 "installed": WHEEL} | change  # fmt: skip
        sentences.append(f"{case}: {refusal(**found)}\n")
        assert refusal(**(found | gpu)) is None
    assert_golden("".join(sentences))


def test_libraries_are_tried(tmp_path):
    """For real: one of the system, one from a folder, one that is not there, one that is broken."""
    library = next(Path(np.__file__).parent.rglob("*_umath*.so"))
    shutil.copy(library, tmp_path / "libfolder.so.1")
    (tmp_path / "libbroken.so.1").write_text("no library")
    names = ("libm.so.6", "libfolder.so.1", "libnone.so.1", "libbroken.so.1")
    found = load(names, [str(tmp_path)])
    assert found["libm.so.6"] is None
    assert found["libfolder.so.1"] is None
    assert "libnone.so.1" in found["libnone.so.1"]
    assert "invalid ELF header" in found["libbroken.so.1"] or "too short" in found["libbroken.so.1"]
    assert load(["libfolder.so.1"], [])["libfolder.so.1"] is not None


def test_the_tools_of_xla_are_found_where_xla_looks(monkeypatch, tmp_path):
    named, wheels, path = tmp_path / "named", tmp_path / "nvidia", tmp_path / "path"
    flags = {"XLA_FLAGS": f"--xla_dump_to=x --xla_gpu_cuda_data_dir={named}", "PATH": str(path)}
    libraries = [str(wheels / "cublas" / "lib"), str(wheels / "cudnn" / "lib")]
    monkeypatch.setattr(doctor, "_SYSTEM", tmp_path / "local")
    assert xla_tools(libraries, {"PATH": ""}, "12.5.1") == {"ptxas": None, "libdevice": None}

    def make(root, place, mode=0o644):
        (root / place).parent.mkdir(parents=True, exist_ok=True)
        (root / place).write_text("")
        (root / place).chmod(mode)
        return str(root / place)

    in_path = make(path, "ptxas", 0o755)
    assert xla_tools(libraries, flags)["ptxas"] == in_path
    any_version = make(tmp_path / "local" / "cuda", "bin/ptxas")
    assert xla_tools(libraries, flags, "12.5.1")["ptxas"] == any_version
    of_version = make(tmp_path / "local" / "cuda-12.5", "bin/ptxas")
    assert xla_tools(libraries, flags, "12.5.1")["ptxas"] == of_version
    device = "nvvm/libdevice/libdevice.10.bc"
    of_wheel = {"ptxas": make(wheels / "cuda_nvcc", "bin/ptxas"),
                "libdevice": make(wheels / "cuda_nvcc", device)}  # fmt: skip
    assert xla_tools(libraries, flags) == of_wheel
    assert xla_tools(libraries, {"PATH": str(path)}) == of_wheel
    first = make(named, device)
    assert xla_tools(libraries, flags) == of_wheel | {"libdevice": first}


@pytest.mark.sampled
def test_the_document(deploykit, monkeypatch, tmp_path):
    monkeypatch.setenv("TF_ENABLE_ONEDNN_OPTS", "0")
    monkeypatch.setenv("TF_NUM_INTRAOP_THREADS", "7")
    monkeypatch.setenv("TF_NUM_INTEROP_THREADS", "no number")
    out = tmp_path / "doctor.json"
    found = deploykit("doctor", "--json", "-o", out)
    assert (found.status, found.stderr) == (0, "")
    document = found.document
    assert json.loads(out.read_text()) == document
    assert document["tensorflow"]["version"] == metadata.version("tensorflow")
    assert document["onednn"] == {"on": False, "why": "TF_ENABLE_ONEDNN_OPTS=0"}
    assert document["threads"]["intra"] == 7
    assert document["threads"]["inter"] == len(document["machine"]["affinity"])
    assert document["environment"]["TF_ENABLE_ONEDNN_OPTS"] == "0"
    gpu = document["gpu"]
    assert set(gpu["libraries"]) == set(LIBRARIES)
    assert set(gpu["tools"]) == {"ptxas", "libdevice"}
    assert gpu["cupti"] is None or "libcupti" in gpu["cupti"]
    assert (gpu["refusal"] is None) == bool(gpu["seen"])


@pytest.mark.sampled
def test_in_words(deploykit, monkeypatch):
    monkeypatch.delenv("TF_ENABLE_ONEDNN_OPTS", raising=False)
    found = deploykit("doctor")
    assert (found.status, found.stderr) == (0, "")
    rows = dict(line.split(maxsplit=1) for line in found.stdout.splitlines() if line)
    assert rows["oneDNN"].endswith("(default)")
    assert rows["tensorflow"].startswith(metadata.version("tensorflow"))
    last = found.stdout.splitlines()[-1]
    assert shows(last, "no-gpu-seen") or "/physical_device:GPU:" in last
    for library in LIBRARIES:
        assert rows[library] == "loads" or shows(rows[library], "library-unloadable")
    assert rows["CUPTI"] == "loads" or shows(rows["CUPTI"], "profiler-unloadable")
    for tool in ("ptxas", "libdevice"):
        assert rows[tool].startswith("/") or shows(rows[tool], "tool-missing")


@pytest.mark.parametrize(
    ("start", "why"),
    [
        ("raise ImportError('no such symbol')", "no such symbol"),
        ("import os; os.abort()", "SIGABRT"),
        ("import os; os._exit(3)", "status 3"),
    ],
)
def test_a_tensorflow_that_does_not_start(started_children, monkeypatch, tmp_path, start, why):
    package = tmp_path / "tensorflow"
    package.mkdir()
    (package / "__init__.py").write_text(f"{start}\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    sentence = gpu_refusal()
    assert why in sentence
    assert "\n" not in sentence
    found = examine()
    assert found["onednn"]["on"] is None
    text = [*drawn(lines(found))]
    assert any(line.startswith("tensorflow ") and why in line for line in text)
    assert text[-1] == sentence


def test_more_threads_than_the_control_group_allows():
    found = examine()
    found["machine"]["cpu_limit"] = 0.5
    assert any("--threads" in line for line in drawn(lines(found)))
    found["machine"]["cpu_limit"] = 4096.0
    assert not any("--threads" in line for line in drawn(lines(found)))


@pytest.mark.golden("usage/doctor")
def test_wrong_usage(deploykit):
    wrong = ("model.pb", "--timeout=0", "--timeout=nan", "--memory-limit=0")
    assert_golden(*refusals(deploykit, ("doctor",), wrong))
