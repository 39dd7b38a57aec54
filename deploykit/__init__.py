"""deploykit takes a trained TensorFlow model to a fast, verified, served one.

import deploykit
graph = deploykit.freeze("model.ckpt")
deploykit.save_graph(deploykit.quantize(graph), "model.quantized.pb")
"""

import importlib
import warnings
from typing import Any

__version__ = "0.1.0"

# Where each public name lives; it is imported when first used, so that `--help` is quick.
_HOMES = {
    "Accuracy": "correctness.result",
    "BenchmarkResult": "benchmarking.results",
    "BugError": "transforms.core.errors",
    "Calibration": "quantization.calibration",
    "CallError": "serving.client.endpoint",
    "Client": "serving.client.client",
    "VerifyOptions": "api.comparison",
    "Connection": "serving.client.connection",
    "ConvertedSets": "records.sets",
    "CrashError": "transforms.core.errors",
    "DataLike": "verification.public_types",
    "Diagnosis": "api.doctor",
    "Differences": "api.diff",
    "EnginePlacement": "inspection.engine_placement",
    "Error": "transforms.core.errors",
    "ExportOptions": "exporting.export",
    "Exported": "exporting.export",
    "BenchmarkInputs": "benchmarking.feeding",
    "FileError": "transforms.core.errors",
    "Graph": "transforms.core.graph",
    "GraphError": "transforms.core.errors",
    "ImageLabels": "api.label",
    "ImageLike": "verification.public_types",
    "InferOptions": "batch_inference.infer_options",
    "Inferred": "batch_inference.inferred",
    "InputResult": "input.input_result",
    "Inspection": "api.inspect",
    "LabelOptions": "calling.call_options",
    "LabelsLike": "verification.public_types",
    "LimitError": "transforms.core.errors",
    "ResourceLimits": "transforms.core.running.child",
    "LoadError": "transforms.core.errors",
    "LoadTest": "api.loadtest",
    "LoadTestOptions": "calling.call_options",
    "Manifests": "exporting.deployment",
    "MismatchError": "transforms.core.errors",
    "MissingPackageError": "transforms.core.errors",
    "ModelLike": "verification.public_types",
    "ModelVersions": "calling.server_status",
    "ModelsLike": "verification.public_types",
    "NotQuantizedError": "transforms.core.errors",
    "OpenedModel": "freezing.open_model",
    "PathLike": "verification.public_types",
    "PipelineError": "transforms.core.errors",
    "InputPipelineOptions": "input.piping",
    "Placement": "inspection.placement",
    "PlanOptions": "planning.plan_options",
    "PredictOptions": "calling.call_options",
    "Prediction": "api.predict",
    "PreprocessLike": "verification.public_types",
    "QuantizeOptions": "quantization.requested",
    "Quantized": "quantization.result",
    "Recommendation": "benchmarking.tuning.recommendation",
    "RecordOptions": "api.record_options",
    "RecordsInspection": "api.inspect_records",
    "RecordsVerification": "api.verify_records",
    "RefusedError": "transforms.core.errors",
    "ReplicaPlan": "api.plan",
    "ReportPage": "reporting.page.page",
    "ResultLike": "verification.public_types",
    "Rewriting": "rewriting.rewrite",
    "RunningServer": "serving.server.process",
    "Dataset": "verification.samples",
    "Sensitivity": "quantization.sensitivity",
    "ServedModels": "calling.server_status",
    "ServerFlags": "serving.server.server_flags",
    "ServerHealth": "calling.server_status",
    "RunConfig": "benchmarking.settings",
    "ShipOptions": "shipping.ship_options",
    "Shipped": "shipping.shipped",
    "ValidationReport": "api.check",
    "ModelSource": "freezing.interface",
    "Speedups": "benchmarking.comparison.comparing",
    "StepError": "transforms.core.errors",
    "RunConfigGrid": "benchmarking.sweep",
    "BenchmarkOptions": "benchmarking.scenarios.timing",
    "TransformGraph": "api.transform",
    "TransformList": "api.list_transforms",
    "TuneOptions": "benchmarking.tuning.tune_options",
    "UnverifiedError": "transforms.core.errors",
    "Verification": "verification.verify",
    "VerificationError": "transforms.core.errors",
    "WeightsInt8": "quantization.weights",
    "WrittenInput": "api.write_input",
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

__all__ = sorted(_HOMES)

# What public classes were called before 0.2. These names go in the release after it.
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
        raise AttributeError(f"module 'deploykit' has no attribute '{name}'")
    return getattr(importlib.import_module(f"deploykit.{_HOMES[name]}"), name)
