"""deploykit optimizes, verifies, benchmarks and serves trained TensorFlow models.

import deploykit
graph = deploykit.freeze("model.ckpt")
deploykit.save_graph(deploykit.quantize(graph), "model.quantized.pb")
"""

import importlib
import warnings
from typing import Any

__version__ = "0.2.0"

# The module of each public name; it is imported at the first use, so that `--help` is fast.
_HOMES = {
    "Accuracy": "evaluation.result",
    "BenchmarkResult": "benchmarking.results",
    "BugError": "transforms.common.errors",
    "Calibration": "quantization.calibration",
    "CallError": "serving.client.endpoint",
    "Client": "serving.client.client",
    "VerifyOptions": "api.comparison",
    "Connection": "serving.client.endpoint",
    "ConvertedSets": "records.open_source",
    "CrashError": "transforms.common.errors",
    "DataLike": "verification.samples",
    "Diagnosis": "api.installation",
    "Differences": "api.inspection",
    "EnginePlacement": "inspection.placement",
    "Error": "transforms.common.errors",
    "ExportOptions": "exporting.export",
    "Exported": "exporting.export",
    "BenchmarkInputs": "benchmarking.inputs",
    "FileError": "transforms.common.errors",
    "GateLimits": "gating.limits",
    "GateResult": "gating.result",
    "Graph": "transforms.ir.graph",
    "GraphError": "transforms.common.errors",
    "ImageLabels": "api.label",
    "ImageLike": "verification.samples",
    "InferOptions": "batch_inference.infer_task",
    "Inferred": "batch_inference.infer_run",
    "InconclusiveError": "transforms.common.errors",
    "InputResult": "data.input_speed.input_result",
    "Inspection": "api.inspection",
    "LabelOptions": "client.call_options",
    "LabelsLike": "verification.samples",
    "LimitError": "transforms.common.errors",
    "ResourceLimits": "transforms.runtime.child_process",
    "LoadError": "transforms.common.errors",
    "LoadTest": "api.requests",
    "LoadTestOptions": "client.call_options",
    "Manifests": "exporting.deployment",
    "MismatchError": "transforms.common.errors",
    "MissingPackageError": "transforms.common.errors",
    "ModelLike": "importers.open_model",
    "ModelVersions": "client.server_status",
    "ModelsLike": "importers.open_model",
    "NotQuantizedError": "transforms.common.errors",
    "OpenedModel": "importers.open_model",
    "PathLike": "verification.samples",
    "PipelineError": "transforms.common.errors",
    "InputPipelineOptions": "data.pipeline",
    "Placement": "inspection.placement",
    "PredictOptions": "client.call_options",
    "Prediction": "api.requests",
    "PreprocessLike": "verification.samples",
    "QuantizeOptions": "quantization.quantize_options",
    "Quantized": "quantization.result",
    "Recommendation": "benchmarking.tuning.recommendation",
    "RecordOptions": "api.records",
    "RecordsInspection": "api.records",
    "RecordsVerification": "api.records",
    "RefusedError": "transforms.common.errors",
    "ReportPage": "reporting.page.page",
    "ResultLike": "verification.samples",
    "Rewriting": "pipelines.rewrite",
    "RunningServer": "serving.server.process",
    "Dataset": "verification.samples",
    "Sensitivity": "quantization.sensitivity",
    "ServedModels": "client.server_status",
    "ServerFlags": "serving.server.server_flags",
    "ServerHealth": "client.server_status",
    "RunConfig": "benchmarking.run_config",
    "ShipOptions": "shipping.ship_options",
    "Shipped": "shipping.shipped",
    "ValidationReport": "api.verification",
    "ModelSource": "importers.model_source",
    "Speedups": "benchmarking.comparing",
    "StepError": "transforms.common.errors",
    "RunConfigGrid": "benchmarking.run_config_grid",
    "BenchmarkOptions": "benchmarking.run_config",
    "TransformGraph": "api.rewriting",
    "TransformList": "api.installation",
    "TuneOptions": "benchmarking.tuning.search_space",
    "UnverifiedError": "transforms.common.errors",
    "Verification": "verification.verify",
    "VerificationError": "transforms.common.errors",
    "WeightsInt8": "quantization.weights_only",
    "WrittenInput": "api.write_input",
    "accuracy": "api.accuracy",
    "benchmark": "api.benchmarking",
    "calibrate": "api.calibration",
    "check": "api.verification",
    "compare": "api.compare",
    "convert_records": "api.records",
    "diff": "api.inspection",
    "doctor": "api.installation",
    "export": "api.exporting",
    "freeze": "api.freeze",
    "gate": "api.gate",
    "infer": "api.infer",
    "inspect": "api.inspection",
    "inspect_records": "api.records",
    "label": "api.label",
    "list_transforms": "api.installation",
    "load_graph": "importers.graph_files",
    "load_result": "benchmarking.results",
    "load_test": "api.requests",
    "load_tuned": "benchmarking.results",
    "open_model": "importers.open_model",
    "optimize": "api.rewriting",
    "placement": "api.placement",
    "predict": "api.requests",
    "quantize": "api.quantize",
    "report": "api.report",
    "save_graph": "importers.graph_files",
    "sensitivity": "api.calibration",
    "serve": "api.serve",
    "ship": "shipping.ship",
    "status": "api.requests",
    "transform": "api.rewriting",
    "tune": "api.tuning",
    "verify": "api.verification",
    "verify_records": "api.records",
    "write_input": "api.write_input",
}

__all__ = sorted(_HOMES)

# Names of public classes before 0.2; they will be removed in the release after it.
_OLD_NAMES = {
    "Comparison": "VerifyOptions",
    "Feeding": "BenchmarkInputs",
    "Limits": "ResourceLimits",
    "Piping": "InputPipelineOptions",
    "Quantization": "QuantizeOptions",
    "Samples": "Dataset",
    "Settings": "RunConfig",
    "Soundness": "ValidationReport",
    "Source": "ModelSource",
    "Sweep": "RunConfigGrid",
    "Timing": "BenchmarkOptions",
}


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])


def __getattr__(name: str) -> Any:
    if name in _OLD_NAMES:
        new = _OLD_NAMES[name]
        message = f"deploykit.{name} is called deploykit.{new}; the old name will be removed"
        warnings.warn(message, DeprecationWarning, stacklevel=2)
        name = new
    if name not in _HOMES:
        importlib.import_module("deploykit.transforms.common.removed").check_name(name)
        raise AttributeError(f"module 'deploykit' has no attribute '{name}'")
    return getattr(importlib.import_module(f"deploykit.{_HOMES[name]}"), name)
