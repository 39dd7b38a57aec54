"""deploykit takes a trained TensorFlow model to a fast, verified, served one.

import deploykit
graph = deploykit.freeze("model.ckpt")
deploykit.save_graph(deploykit.quantize(graph), "model.quantized.pb")
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from deploykit.api.accuracy import accuracy
    from deploykit.api.benchmark import benchmark
    from deploykit.api.calibrate import calibrate
    from deploykit.api.check import check
    from deploykit.api.compare import compare
    from deploykit.api.comparison import Comparison
    from deploykit.api.convert_records import convert_records
    from deploykit.api.diff import diff
    from deploykit.api.doctor import doctor
    from deploykit.api.export import export
    from deploykit.api.freeze import freeze
    from deploykit.api.infer import infer
    from deploykit.api.inspect import inspect
    from deploykit.api.inspect_records import inspect_records
    from deploykit.api.label import label
    from deploykit.api.list_transforms import list_transforms
    from deploykit.api.loadtest import load_test
    from deploykit.api.optimize import optimize
    from deploykit.api.placement import placement
    from deploykit.api.plan import plan
    from deploykit.api.predict import predict
    from deploykit.api.quantize import quantize
    from deploykit.api.record_options import RecordOptions
    from deploykit.api.report import report
    from deploykit.api.sensitivity import sensitivity
    from deploykit.api.serve import serve
    from deploykit.api.status import status
    from deploykit.api.transform import TransformGraph, transform
    from deploykit.api.tune import tune
    from deploykit.api.verify import verify
    from deploykit.api.verify_records import verify_records
    from deploykit.api.write_input import write_input
    from deploykit.batch_inference.infer_options import InferOptions
    from deploykit.benchmarking.feeding import Feeding
    from deploykit.benchmarking.results import load_result, load_tuned
    from deploykit.benchmarking.scenarios.timing import Timing
    from deploykit.benchmarking.settings import Settings
    from deploykit.benchmarking.sweep import Sweep
    from deploykit.benchmarking.tuning.tune_options import TuneOptions
    from deploykit.freezing.graph_files import load_graph, save_graph
    from deploykit.freezing.interface import Source
    from deploykit.freezing.open_model import OpenedModel, open_model
    from deploykit.input.piping import Piping
    from deploykit.planning.plan_options import PlanOptions
    from deploykit.quantization.requested import Quantization
    from deploykit.serving.client.client import Client
    from deploykit.serving.client.connection import Connection
    from deploykit.shipping.ship import ship
    from deploykit.shipping.ship_options import ShipOptions
    from deploykit.transforms.core.running.child import Limits
    from deploykit.verification.samples import Samples

__version__ = "0.1.0"

# Where each public name lives; it is imported when first used, so that `--help` is quick.
_HOMES = {
    "Client": "serving.client.client",
    "Comparison": "api.comparison",
    "Connection": "serving.client.connection",
    "Feeding": "benchmarking.feeding",
    "InferOptions": "batch_inference.infer_options",
    "Limits": "transforms.core.running.child",
    "OpenedModel": "freezing.open_model",
    "Piping": "input.piping",
    "PlanOptions": "planning.plan_options",
    "Quantization": "quantization.requested",
    "RecordOptions": "api.record_options",
    "Samples": "verification.samples",
    "Settings": "benchmarking.settings",
    "ShipOptions": "shipping.ship_options",
    "Source": "freezing.interface",
    "Sweep": "benchmarking.sweep",
    "Timing": "benchmarking.scenarios.timing",
    "TransformGraph": "api.transform",
    "TuneOptions": "benchmarking.tuning.tune_options",
    "accuracy": "api.accuracy",
    "benchmark": "api.benchmark",
    "calibrate": "api.calibrate",
    "check": "api.check",
    "compare": "api.compare",
    "convert_records": "api.convert_records",
    "diff": "api.diff",
    "doctor": "api.doctor",
    "export": "api.export",
    "freeze": "api.freeze",
    "infer": "api.infer",
    "inspect": "api.inspect",
    "inspect_records": "api.inspect_records",
    "label": "api.label",
    "list_transforms": "api.list_transforms",
    "load_graph": "freezing.graph_files",
    "load_result": "benchmarking.results",
    "load_test": "api.loadtest",
    "load_tuned": "benchmarking.results",
    "open_model": "freezing.open_model",
    "optimize": "api.optimize",
    "placement": "api.placement",
    "plan": "api.plan",
    "predict": "api.predict",
    "quantize": "api.quantize",
    "report": "api.report",
    "save_graph": "freezing.graph_files",
    "sensitivity": "api.sensitivity",
    "serve": "api.serve",
    "ship": "shipping.ship",
    "status": "api.status",
    "transform": "api.transform",
    "tune": "api.tune",
    "verify": "api.verify",
    "verify_records": "api.verify_records",
    "write_input": "api.write_input",
}

__all__ = [
    "Client",
    "Comparison",
    "Connection",
    "Feeding",
    "InferOptions",
    "Limits",
    "OpenedModel",
    "Piping",
    "PlanOptions",
    "Quantization",
    "RecordOptions",
    "Samples",
    "Settings",
    "ShipOptions",
    "Source",
    "Sweep",
    "Timing",
    "TransformGraph",
    "TuneOptions",
    "accuracy",
    "benchmark",
    "calibrate",
    "check",
    "compare",
    "convert_records",
    "diff",
    "doctor",
    "export",
    "freeze",
    "infer",
    "inspect",
    "inspect_records",
    "label",
    "list_transforms",
    "load_graph",
    "load_result",
    "load_test",
    "load_tuned",
    "open_model",
    "optimize",
    "placement",
    "plan",
    "predict",
    "quantize",
    "report",
    "save_graph",
    "sensitivity",
    "serve",
    "ship",
    "status",
    "transform",
    "tune",
    "verify",
    "verify_records",
    "write_input",
]


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])


if not TYPE_CHECKING:  # a type checker that saw it would take any name for one of ours

    def __getattr__(name: str) -> Any:
        if name not in _HOMES:
            raise AttributeError(f"module 'deploykit' has no attribute '{name}'")
        return getattr(importlib.import_module(f"deploykit.{_HOMES[name]}"), name)
