# Written by `make docs` from the code: change that instead.

from collections.abc import Collection
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
from deploykit.api.comparison import VerifyOptions as VerifyOptions
from deploykit.api.convert_records import Compression
from deploykit.api.convert_records import OnError
from deploykit.api.convert_records import RecordOptions as RecordOptions
from deploykit.api.inspection import Differences as Differences
from deploykit.api.inspection import Inspection as Inspection
from deploykit.api.installation import Diagnosis as Diagnosis
from deploykit.api.installation import TransformList as TransformList
from deploykit.api.label import ImageLabels as ImageLabels
from deploykit.api.plan import ReplicaPlan as ReplicaPlan
from deploykit.api.records import RecordsInspection as RecordsInspection
from deploykit.api.records import RecordsVerification as RecordsVerification
from deploykit.api.requests import LoadTest as LoadTest
from deploykit.api.requests import Prediction as Prediction
from deploykit.api.rewriting import TransformGraph as TransformGraph
from deploykit.api.verification import ValidationReport as ValidationReport
from deploykit.api.write_input import WrittenInput as WrittenInput
from deploykit.batch_inference.infer_run import Inferred as Inferred
from deploykit.batch_inference.infer_task import InferOptions as InferOptions
from deploykit.benchmarking.comparing import Speedups as Speedups
from deploykit.benchmarking.inputs import BenchmarkInputs as BenchmarkInputs
from deploykit.benchmarking.results import BenchmarkResult as BenchmarkResult
from deploykit.benchmarking.results import load_result as load_result
from deploykit.benchmarking.results import load_tuned as load_tuned
from deploykit.benchmarking.run_config import BenchmarkOptions as BenchmarkOptions
from deploykit.benchmarking.run_config import RunConfig as RunConfig
from deploykit.benchmarking.run_config_grid import RunConfigGrid as RunConfigGrid
from deploykit.benchmarking.tuning.recommendation import Recommendation as Recommendation
from deploykit.benchmarking.tuning.search_space import TuneOptions as TuneOptions
from deploykit.client.call_options import LabelOptions as LabelOptions
from deploykit.client.call_options import LoadTestOptions as LoadTestOptions
from deploykit.client.call_options import PredictOptions as PredictOptions
from deploykit.client.server_status import ModelVersions as ModelVersions
from deploykit.client.server_status import ServedModels as ServedModels
from deploykit.client.server_status import ServerHealth as ServerHealth
from deploykit.data.input_result import InputResult as InputResult
from deploykit.data.pipeline import InputPipelineOptions as InputPipelineOptions
from deploykit.evaluation.result import Accuracy as Accuracy
from deploykit.exporting.deployment import Manifests as Manifests
from deploykit.exporting.export import ExportOptions as ExportOptions
from deploykit.exporting.export import Exported as Exported
from deploykit.exporting.manifests import ManifestKind
from deploykit.importers.graph_files import load_graph as load_graph
from deploykit.importers.graph_files import save_graph as save_graph
from deploykit.importers.model_source import ModelSource as ModelSource
from deploykit.importers.open_model import OpenedModel as OpenedModel
from deploykit.importers.open_model import open_model as open_model
from deploykit.inspection.engine_placement import EnginePlacement as EnginePlacement
from deploykit.inspection.placement import Placement as Placement
from deploykit.pipelines.rewrite import Rewriting as Rewriting
from deploykit.planning.plan_options import PlanOptions as PlanOptions
from deploykit.quantization.calibration import Calibration as Calibration
from deploykit.quantization.calibration import RangeMethod
from deploykit.quantization.quantize_options import QuantizationMode
from deploykit.quantization.quantize_options import QuantizeOptions as QuantizeOptions
from deploykit.quantization.result import Quantized as Quantized
from deploykit.quantization.sensitivity import Sensitivity as Sensitivity
from deploykit.quantization.weights_only import WeightsInt8 as WeightsInt8
from deploykit.records import SourceKind
from deploykit.records.open_source import ConvertedSets as ConvertedSets
from deploykit.reporting.page.page import ReportPage as ReportPage
from deploykit.serving.client.client import Client as Client
from deploykit.serving.client.endpoint import CallError as CallError
from deploykit.serving.client.endpoint import Connection as Connection
from deploykit.serving.client.endpoint import ServingProtocol
from deploykit.serving.server.process import RunningServer as RunningServer
from deploykit.serving.server.server_flags import ServerFlags as ServerFlags
from deploykit.shipping.ship_options import DeviceKind
from deploykit.shipping.ship_options import Goal
from deploykit.shipping.ship_options import ShipOptions as ShipOptions
from deploykit.shipping.shipped import Shipped as Shipped
from deploykit.transforms.common.errors import BugError as BugError
from deploykit.transforms.common.errors import CrashError as CrashError
from deploykit.transforms.common.errors import Error as Error
from deploykit.transforms.common.errors import FileError as FileError
from deploykit.transforms.common.errors import GraphError as GraphError
from deploykit.transforms.common.errors import LimitError as LimitError
from deploykit.transforms.common.errors import LoadError as LoadError
from deploykit.transforms.common.errors import MismatchError as MismatchError
from deploykit.transforms.common.errors import MissingPackageError as MissingPackageError
from deploykit.transforms.common.errors import NotQuantizedError as NotQuantizedError
from deploykit.transforms.common.errors import PipelineError as PipelineError
from deploykit.transforms.common.errors import RefusedError as RefusedError
from deploykit.transforms.common.errors import StepError as StepError
from deploykit.transforms.common.errors import UnverifiedError as UnverifiedError
from deploykit.transforms.common.errors import VerificationError as VerificationError
from deploykit.transforms.int8.int8_kernels import Isa
from deploykit.transforms.ir.graph import Graph as Graph
from deploykit.transforms.runtime.child_process import ResourceLimits as ResourceLimits
from deploykit.verification.samples import DataLike as DataLike
from deploykit.verification.samples import Dataset as Dataset
from deploykit.verification.samples import ImageLike as ImageLike
from deploykit.verification.samples import InputFunction
from deploykit.verification.samples import LabelsLike as LabelsLike
from deploykit.verification.samples import ModelLike as ModelLike
from deploykit.verification.samples import ModelsLike as ModelsLike
from deploykit.verification.samples import PathLike as PathLike
from deploykit.verification.samples import PreprocessLike as PreprocessLike
from deploykit.verification.samples import ResultLike as ResultLike
from deploykit.verification.verify import Verification as Verification
from numpy.typing import ArrayLike
from pathlib import Path
from typing import Literal
import os

__version__: str
__all__: list[str]
_HOMES: dict[str, str]
_OLD_NAMES: dict[str, str]
Comparison = VerifyOptions
Feeding = BenchmarkInputs
Limits = ResourceLimits
Piping = InputPipelineOptions
Quantization = QuantizeOptions
Samples = Dataset
Settings = RunConfig
Soundness = ValidationReport
Source = ModelSource
Sweep = RunConfigGrid
Timing = BenchmarkOptions

def accuracy(
    models: ModelsLike,
    data: DataLike,
    *,
    preprocess: PreprocessLike | None = None,
    metric: str = 'top1',
    labels: LabelsLike | None = None,
    group_by: str | None = None,
    worst: int = 12,
    allow_ops: Sequence[str] = (),
    inputs: Sequence[str] = (),
    outputs: Sequence[str] = (),
    tags: Sequence[str] = (),
    signature: str | None = None,
    pins: Mapping[str, str] = ...,
    graph: str | Path | None = None,
) -> Accuracy:
    """Measure accuracy on labelled samples.

    Every MODEL runs on the same samples, in the engine that it was written for. Accuracies have a
    95 % confidence interval. The last MODEL is compared with the first one, sample by sample: the
    change of the metric with its interval, the top-1 agreement, the noise of the outputs, and the
    samples on which they disagree most. For a single MODEL, the most confident wrong predictions
    are listed.

    Labels are class numbers, one-hot rows, or names. Names of image folders are looked up in
    `labels` or in the model metadata file. Without either, the sorted folders are numbered from 0
    if there are as many as the model has classes. Without labels, two or more models are only
    compared with each other.

    --json includes thumbnails of the listed samples if they are images.

    Args:
        models: whatever `open_model` takes; several in a list, or by name in a mapping.
        data: Samples with labels: a .npz file of arrays by input name and labels, a folder of
            TFRecords or CSV files, a folder of images with one subfolder per class, or DIR/NAME if
            DIR contains records of several names.
        preprocess: Preprocessing of file features into model inputs, such as image size and value
            range: a JSON file, JSON text, or only the range (0..1, -1..1, 0..255, photo=0..1)
            [default: from the model metadata file X.pb.json, or from the model itself].
        metric: top1, top5, mae, or your own function of the outputs by name and the labels.
        labels: Class names, one per line, in the order of the model's scores. They map class names
            in the data, such as image folders, to class numbers [default: from the model metadata
            file].
        group_by: Also report each group of samples. NAME is an array, column or feature with one
            text or integer per sample, or `folder` for images. [default: `group`, or image folders
            that are not the classes]
        worst: Number of samples to list on which the models disagree most.
        allow_ops: Run this op although it reads or writes files or starts processes; may be
            repeated.

    All samples are in memory. FileError, GraphError: a model or the data cannot be read or do not
    fit each other, a folder is no class of `labels`, there are no labels, or nothing can be
    compared. RefusedError: an op acts on files or processes. LimitError: TensorFlow died or hung.

    Commands:
        deploykit accuracy fashion.pb --data models/fashion/test_1000.npz
        deploykit accuracy flowers.keras int8.pb --data photos/val --labels labels.txt

    Example:
        >>> found = deploykit.accuracy("fashion.keras", "test_1000.npz")
        >>> found.models[0].score.value > 0.8
        True
    """

def benchmark(
    models: ModelsLike,
    settings: RunConfigGrid | RunConfig | Iterable[RunConfig] | Mapping[str, Iterable[RunConfig]] = ...,
    *,
    batch: Sequence[int] | int = (),
    engine: Sequence[Literal['tensorflow', 'openvino']] | Literal['tensorflow', 'openvino'] = (),
    threads: Sequence[tuple[int, int]] | tuple[int, int] | int = (),
    onednn: Sequence[bool] | bool = (),
    caller_thread: Sequence[bool] | bool = (),
    keep_memory: Sequence[bool] | bool = (),
    concurrency: Sequence[int] | int = (),
    executor: Sequence[Literal['default', 'caller', 'single']] | Literal['default', 'caller', 'single'] = (),
    allocator: Sequence[Literal['default', 'tcmalloc', 'huge-pages']] | Literal['default', 'tcmalloc', 'huge-pages'] = (),
    kmp_blocktime: str | None = None,
    kmp_affinity: str | None = None,
    omp_num_threads: int | None = None,
    xla: bool = False,
    precision: Sequence[Literal['fp32', 'tf32', 'fp16', 'bf16']] | Literal['fp32', 'tf32', 'fp16', 'bf16'] = (),
    bf16: bool = False,
    input: Literal['feed', 'tfdata', 'resident', 'queue', 'pipeline', 'all'] | None = None,
    device: str | None = None,
    tuned: RunConfig | str | os.PathLike[str] | None = None,
    feeding: BenchmarkInputs = ...,
    shapes: Mapping[str, Sequence[int]] = ...,
    data: DataLike | None = None,
    input_range: tuple[float, float] = ...,
    allow_ops: Sequence[str] = (),
    piping: InputPipelineOptions = ...,
    run_ops: Sequence[str] = (),
    init: Sequence[str] = (),
    simulated_compute_ms: float | None = None,
    preprocess: PreprocessLike | None = None,
    on_error: Literal['stop', 'skip'] = 'stop',
    shuffle: bool = False,
    cache: str | None = None,
    buckets: Sequence[int] = (),
    private_threads: int | None = None,
    service_workers: int | None = None,
    service_address: str | None = None,
    pipeline: str | InputFunction | None = None,
    timing: BenchmarkOptions = ...,
    seconds: float = 10,
    runs: int | None = None,
    rounds: int | None = None,
    scenario: Literal['single', 'offline', 'server'] | None = None,
    rate: float | None = None,
    latency_limit: float | None = None,
    profile: bool = False,
    inputs: Sequence[str] = (),
    outputs: Sequence[str] = (),
    tags: Sequence[str] = (),
    signature: str | None = None,
    pins: Mapping[str, str] = ...,
    graph: str | Path | None = None,
) -> BenchmarkResult | InputResult:
    """Measure how fast models run, with one or several settings.

    Every model runs with every combination of settings. Several sessions of each are interleaved in
    random order, so that other load on the machine affects all of them equally. Each is warmed up
    until its latencies are stable. The run stops early once every comparison is conclusive.

    Each model is compared with the first one that has the same batch. The verdict is "faster" (wall
    time), "slower" (wall time or CPU time), "no difference" (below the stated percentage) or
    "undecided".

    With `data` DIR, files are read while the model runs: by Python, through queues and through
    tf.data. The result shows the rate of reading, the rate of the model, and which of both is the
    bottleneck.

    With `scenario`, each model is measured alone for `seconds`, as MLPerf does: single (one request
    after another; p90 latency), offline (all samples; samples a second), or server (`rate` random
    requests a second; p99 latency). The result states whether it is valid and why.

    After Ctrl-C, the result so far is written and shown.

    Args:
        models: whatever `open_model` takes; several in a list, or by name in a mapping.
        settings: what each is run with; a `RunConfigGrid` means every combination, a mapping is by
            model.
        feeding: data or made-up values. Ops that act on files or processes are refused but for
            `allow_ops`.
        piping: how files reach the model, and what of it is run.
        timing: for how long, for how many calls, or in which scenario.
        profile: Also trace some calls: time, memory and operations by op and by node, compared with
            the machine's peak.

    Latencies are in milliseconds. Ctrl-C ends it early: what was measured until then is the result.
    FileError, GraphError: a model or the data cannot be read, do not fit each other, or what is
    asked for contradicts itself; a GPU or an engine is not there, or lacks an op, which is named.
    RefusedError: an op acts on files or processes. LimitError: TensorFlow died or hung.
    VerificationError: an engine is wrong.

    Commands:
        deploykit benchmark fashion.pb optimized.pb --batch 1,32 --seconds 5
        deploykit benchmark fashion.pb --runs 50 --profile --top 5
        deploykit benchmark fashion.pb --scenario server --rate 200 --latency-limit 15

    Example:
        >>> found = deploykit.benchmark("fashion.keras", batch=[1, 8], runs=20)
        >>> [each.samples for each in found.measurements]
        [1, 8]
    """

def calibrate(
    model: ModelLike,
    data: DataLike,
    *,
    preprocess: PreprocessLike | None = None,
    method: RangeMethod = 'minmax',
    batch: int | None = None,
    allow_ops: tuple[str, ...] = (),
    output: PathLike | None = None,
    force: bool = False,
    inputs: Sequence[str] = (),
    outputs: Sequence[str] = (),
    tags: Sequence[str] = (),
    signature: str | None = None,
    pins: Mapping[str, str] = ...,
    graph: str | Path | None = None,
) -> Calibration:
    """Record the value range of each tensor of a model.

    Runs the model on the data and writes a JSON file that can be edited: for each float tensor its
    smallest and largest value, and the mean and smallest value of each channel. Quantization maps
    these ranges to int8.

    Args:
        model: whatever `open_model` takes; a GraphDef file is taken as it stands.
        data: At least 64 representative samples: a .npz file of arrays by input name, a folder of
            TFRecords, images or CSV files, or DIR/NAME if DIR contains records of several names.
        preprocess: Preprocessing of file features into model inputs, such as image size and value
            range: a JSON file, JSON text, or only the range (0..1, -1..1, 0..255, photo=0..1)
            [default: from the model metadata file X.pb.json, or from the model itself].
        method: minmax: the full range of values; mse: the range with the smallest int8 error, which
            runs the samples twice.
        batch: Samples in a batch [default: the model's fixed batch, or 8].
        allow_ops: Run this op although it reads or writes files or starts processes; may be
            repeated.
        output: a `.json` file to write the ranges to, which `transform` and `sensitivity` read.
        force: Replace an existing output file.

    FileError, GraphError: the samples do not fit, there is none, or an activation holds NaN or Inf.

    Commands:
        deploykit calibrate fashion.pb --data models/fashion/test_1000.npz
        deploykit calibrate fashion.pb --data models/fashion/test_1000.npz
            --method mse -o mse.json

    Example:
        >>> found = deploykit.calibrate("fashion.keras", "test_1000.npz", batch=100)
        >>> found.ranges.samples
        1000
    """

def check(
    model: ModelLike,
    *,
    allow_ops: Collection[str] = (),
    inputs: Sequence[str] = (),
    outputs: Sequence[str] = (),
    tags: Sequence[str] = (),
    signature: str | None = None,
    pins: Mapping[str, str] = ...,
    graph: str | Path | None = None,
) -> ValidationReport:
    """Validate a model before any part of it runs.

    Exits with 2 if the model is invalid: a node does not match its op, an output needs an op that
    TensorFlow does not know, a function calls itself without end, the file requests far more memory
    than its size, or TensorFlow's importer refuses it. Exits with 3 if the model is valid but
    contains ops that act on files, the network or processes. Ops that store the variables of a
    SavedModel or a checkpoint do not count. All findings are always printed.

    deploykit checks the bytes of the file before it decodes them, and runs TensorFlow in a separate
    process.

    Args:
        model: whatever `open_model` takes; a `ModelSource` may name outputs.
        allow_ops: Accept this op although it acts on files, the network or processes; may be
            repeated.

    A model that is not sound raises nothing: the result has `problems`, and `error` is what to
    raise. FileError: a file is missing or unreadable, those with the values of variables among
    them. GraphError: it has no such input, output, tags or signature. RefusedError: an asset file
    lies elsewhere.

    Commands:
        deploykit check models/fashion/fashion.keras
        deploykit check model.pb --allow-op ReadFile --json

    Example:
        >>> found = deploykit.check("fashion.keras")
        >>> found.problems, found.refused_ops
        ([], [])
    """

def compare(
    a: BenchmarkResult | str | os.PathLike[str],
    b: BenchmarkResult | str | os.PathLike[str] | None = None,
    *,
    baseline: str | os.PathLike[str] | None = None,
    confidence: float = 0.998,
    fail_below: float | None = None,
) -> Speedups:
    """Compare the results of two benchmarks, or one with a baseline.

    The speed is the median latency of A divided by that of B: above 1, B is faster. Measurements
    are paired by name and settings. If no pair matches, the only two with the same settings are
    compared, or the only two at all.

    The verdict is shown below the table. "slower": B takes more CPU time per call, or more than 10
    % more wall time. "faster": B is more than 10 % faster in wall time. A machine varies by about
    10 % from hour to hour. Models that are interleaved in one `deploykit benchmark` need no such
    margin.

    `fail_below` 0.95 fails only if the whole interval is below 0.95: 0.9 with the interval 0.8 to
    1.0 passes, 0.9 with 0.86 to 0.94 fails. With `baseline`, a result that fails is not added.

    Args:
        a: a result of `deploykit.benchmark`, or the JSON file that its command writes.
        b: likewise.
        baseline: Compare A with the earlier results of this machine in this file, and add A to it.
            The first result creates the file.
        confidence: Confidence of the intervals, from 0.5 to 0.9999.
        fail_below: Exit with 5 if B is significantly slower than this, or if nothing was compared.
            The first result of a new `baseline` passes.

    `check(0.95)` of what is returned raises VerificationError where b is slower than that for sure,
    or nothing was compared; the first result of a new baseline passes.
    FileError: a file cannot be read or written. GraphError: it is no result, or nothing has a
    partner.

    Commands:
        deploykit compare before.json after.json --fail-below 0.95
        deploykit compare today.json --baseline baseline.json

    Example:
        >>> result = deploykit.benchmark("fashion.keras", runs=100)
        >>> [pair.ratio.value for pair in deploykit.compare(result, result).pairs]
        [1.0]
    """

def convert_records(
    sources: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    folder: str | os.PathLike[str],
    how: RecordOptions = ...,
    *,
    kind: SourceKind | None = None,
    name: str | None = None,
    label_column: str | None = None,
    labels: str | os.PathLike[str] | None = None,
    raw: bool = False,
    shard_size: float = 100,
    compression: Compression = 'none',
    processes: int | None = None,
    on_error: OnError = 'stop',
    force: bool = False,
) -> ConvertedSets:
    """Write data as TFRecord shards.

    SOURCE is a folder of images, numeric CSV files, tab-separated text files, a .npz file, IDX
    files (MNIST), or CIFAR files. The unpacked CIFAR folder becomes records named train, validation
    (data_batch_5 of CIFAR-10) and test; other commands take one of them as --data DIR/train. The
    shards are byte-identical for any number of processes. NAME.index.json next to them lists the
    features, the number of records, and the SHA-256 of each shard. Records keep the order of the
    source. Images are sorted by class, so shuffle them for training.

    After an interruption, the same command resumes; finished shards are kept.

    Args:
        sources: a folder of images; or one or several files: CSV files of numbers, lines of text
            between tabs, a `.npz` file, IDX files (MNIST), files of CIFAR; CIFAR's whole folder
            becomes `train`, `validation` and `test` in one go.
        folder: where the shards go.
        how: what the sources are, and what the shards are to be.
        force: Replace existing records of this name.

    FileError: something cannot be read or written, or the records exist. GraphError: the data are
    of no known kind, an item is wrong, or none is there.

    Commands:
        deploykit records photos records
        deploykit records cifar-10-batches-py cifar
        deploykit records data.csv table --label-column 0 --name train

    Example:
        >>> found = deploykit.convert_records("test_1000.npz", "records", shard_size=0.5)
        >>> found.index.records, found.skipped
        (1000, 0)
    """

def diff(
    first: ModelLike,
    second: ModelLike,
    *,
    inputs: Sequence[str] = (),
    outputs: Sequence[str] = (),
    tags: Sequence[str] = (),
    signature: str | None = None,
    pins: Mapping[str, str] = ...,
    graph: str | Path | None = None,
) -> Differences:
    """Show the nodes that two models do not share.

    Exits with 0 if the graphs are equal, and with 5 if they differ. Prints a summary of nodes, ops,
    weights, inputs and outputs, then each difference. Lines with - are nodes only in FIRST, + only
    in SECOND, and ~ nodes whose op, inputs, device or attributes differ.

    The order of nodes, attributes whose names start with an underscore, and versions are not
    compared. `deploykit verify` compares the outputs of the models.

    Args:
        first: whatever `open_model` takes.
        second: likewise.

    FileError, GraphError: a model cannot be read.

    Commands:
        deploykit diff model.pb optimized.pb
        deploykit diff models/fashion/fashion.keras model.pb --json

    Example:
        >>> deploykit.diff("fashion.keras", "fashion.keras").equal
        True
    """

def doctor(
) -> Diagnosis:
    """Show the machine and the TensorFlow installation that run models here.

    Shows the machine and its limits, versions, TensorFlow's build and configuration, the
    environment variables that affect it, and the GPU with its driver and libraries. If TensorFlow
    sees no GPU, the last line gives the reason and the fix.

    Commands:
        deploykit doctor
        deploykit doctor --json

    Example:
        >>> sorted(deploykit.doctor().document())
        ['environment', 'extras', 'gpu', 'machine', 'onednn', 'tensorflow', 'threads']
    """

def export(
    model: ModelLike,
    base_dir: str | os.PathLike[str],
    how: ExportOptions = ...,
    *,
    name: str | None = None,
    version: int | None = None,
    signature_name: str | Sequence[str] | None = None,
    input_aliases: Mapping[str, str] = ...,
    output_aliases: Mapping[str, str] = ...,
    method: Literal['predict', 'classify', 'regress'] | None = None,
    warmup: DataLike | None = None,
    warmup_samples: int = 20,
    preprocess: PreprocessLike | None = None,
    warmup_preprocess: PreprocessLike | None = None,
    labels: str | os.PathLike[str] | Sequence[str] | None = None,
    max_pixels: int = 50000000,
    manifests: Manifests = ...,
    engine: Literal['auto', 'tensorflow', 'openvino'] | None = None,
    allow_ops: Sequence[str] = (),
    inputs: Sequence[str] = (),
    outputs: Sequence[str] = (),
    tags: Sequence[str] = (),
    signature: str | None = None,
    pins: Mapping[str, str] = ...,
    graph: str | Path | None = None,
) -> Exported:
    """Write a model as a version that TensorFlow Serving loads.

    Writes the folder BASE_DIR/NAME/N/ atomically, with a new version number N; existing versions
    are never replaced. The signatures of a SavedModel keep their names, inputs and outputs. With
    `signature`, only that one is exported, as the default. Any other model gets the signature
    serving_default, with the names of inputs and outputs in the graph. `signature_name`,
    `input_aliases` and `output_aliases` rename the signature, its inputs and its outputs for
    existing clients. With `preprocess`, serving_default takes encoded image files (bytes), the
    signature pixels takes decoded images (uint8), and the signature tensors takes the model's own
    inputs.

    Args:
        model: whatever `open_model` takes.
        base_dir: the folder of models.
        how: what the version is to be.

    FileError: the version exists, or cannot be written. GraphError: the model cannot be read, or
    its tensors do not suit the method. RefusedError: it acts on files or processes.

    Commands:
        deploykit export fashion.pb served --warmup models/fashion/test_1000.npz
        deploykit export fashion.pb served --preprocess 0..1
        deploykit export fashion.pb served --input-alias photo=images
        deploykit export fashion.pb served --method classify --manifests docker

    Example:
        >>> found = deploykit.export("fashion.keras", "models", name="fashion")
        >>> found.version
        1
    """

def freeze(
    model: ModelLike,
    how: VerifyOptions = ...,
    *,
    data: DataLike | None = None,
    shapes: Mapping[str, Sequence[int]] = ...,
    input_range: tuple[float, float] = ...,
    allow_ops: Sequence[str] = (),
    tolerance: float | None = None,
    allow_unverified: bool = False,
    preprocess: PreprocessLike | None = None,
    labels: LabelsLike | None = None,
    output: PathLike | None = None,
    force: bool = False,
    inputs: Sequence[str] = (),
    outputs: Sequence[str] = (),
    tags: Sequence[str] = (),
    signature: str | None = None,
    pins: Mapping[str, str] = ...,
    graph: str | Path | None = None,
) -> Graph:
    """Turn the variables of a model into constants.

    MODEL is a SavedModel folder, a checkpoint prefix with its .meta file (or `graph`), a .keras or
    .h5 file, or a frozen graph (.pb, .pbtxt). Functions are inlined, and lookup tables are stored
    in the graph. A boolean placeholder with a name like is_training becomes false, unless it is an
    input.

    deploykit loads and runs the new file once, and compares it with the graph as it was read.
    Nothing is written if they differ, or if they could not be compared.

    Args:
        model: whatever `open_model` takes.
        how: on which inputs the written file is compared with the model.
        preprocess: Preprocessing of the model's data, in the form that calibrate and benchmark
            take. It is stored in the model metadata file, where other commands find it.
        labels: File with the class names, one per line. They are stored in the model metadata file,
            where deploykit label finds them.
        output: a `.pb` file to write too.
        force: Replace an existing output file.

    FileError: a file is missing, unreadable or cannot be written. GraphError: the model is not
    sound, or has no such tags or signature. RefusedError: it holds code, or acts on files or
    processes when it is run. VerificationError: the written file computes something else, or
    nothing could be compared.

    Commands:
        deploykit freeze models/fashion/fashion.keras -o fashion.pb
        deploykit freeze models/fashion/tf1/model.ckpt -o checkpoint.pb

    Example:
        >>> graph = deploykit.freeze("fashion.keras", output="frozen.pb")
        >>> graph.inputs, graph.outputs
        (('images',), ('probabilities',))
    """

def infer(
    model: ModelLike,
    data: str | os.PathLike[str],
    out: str | os.PathLike[str],
    how: InferOptions = ...,
    *,
    engine: Literal['processes', 'ray'] = 'processes',
    address: str | None = None,
    processes: int | None = None,
    batch: int | None = None,
    preprocess: PreprocessLike | None = None,
    top: int | None = None,
    labels: str | os.PathLike[str] | Sequence[str] | None = None,
    format: Literal['npz', 'parquet', 'tfrecord', 'csv'] = 'npz',
    name: str | None = None,
    on_error: Literal['stop', 'skip'] = 'stop',
    retries: int = 3,
    tuned: str | os.PathLike[str] | None = None,
    force: bool = False,
    allow_ops: Sequence[str] = (),
    inputs: Sequence[str] = (),
    outputs: Sequence[str] = (),
    tags: Sequence[str] = (),
    signature: str | None = None,
    pins: Mapping[str, str] = ...,
    graph: str | Path | None = None,
) -> Inferred:
    """Run batch inference over a dataset and write the predictions.

    DATA is a folder of TFRecords with their index (DIR/NAME if DIR contains records of several
    names), a folder of images or CSV files, a CSV or Parquet file, or a .npz file of arrays by
    input name. DATA is split into parts; TFRecords are split by shard. Each worker takes the next
    part and writes its predictions to the folder OUT atomically, as one file. Each row names the
    file and the row of DATA that it belongs to. Work of a lost worker is retried. At the end,
    OUT/NAME.index.json lists all parts with their SHA-256, and the skipped rows.

    After Ctrl-C or a crash, the same command resumes with the missing parts. On a cluster, every
    machine needs deploykit and sees MODEL, OUT and DATA under the same paths.

    Args:
        model: whatever `open_model` takes; a folder of `ship` brings its preprocessing, labels and
            settings.
        data: a folder of TFRecords with their index, of photos or of CSV files, a CSV or Parquet
            file, or a `.npz` file of arrays by input name.
        out: the folder of the results; on a cluster, all machines see it and the data under the
            same paths.
        how: workers, preprocessing, and what is written.

    FileError: something cannot be read or written, or other results are there. GraphError: the data
    do not fit the model, or a row cannot be used; it is named. RefusedError: an op acts on files or
    processes. LimitError: a part was lost with its worker too often.

    Commands:
        deploykit infer fashion.pb models/fashion/test_1000.npz answers --top 1
        deploykit infer shipped photos answers --top 5 --format csv
        deploykit infer int8.pb /mnt/records /mnt/answers --engine ray
            --address 10.0.0.7:6379 --format parquet

    Example:
        >>> found = deploykit.infer("fashion.keras", "test_1000.npz", "answers", top=1)
        >>> found.rows
        1000
    """

def inspect(
    model: ModelLike,
    *,
    top: int = 10,
    structure: bool = False,
    inputs: Sequence[str] = (),
    outputs: Sequence[str] = (),
    tags: Sequence[str] = (),
    signature: str | None = None,
    pins: Mapping[str, str] = ...,
    graph: str | Path | None = None,
) -> Inspection:
    """Show what a model contains, and its FLOPs and memory.

    Shows inputs, outputs, variables, parameters, ops, devices and functions, and the batch norms
    that can be folded. FLOPs (a multiply-add counts as 2) and memory are estimated at batch 1, for
    nodes whose shapes are known without running the model.

    A GraphDef file is shown as it is. Any other model is frozen first, so it has no variables.

    Args:
        model: whatever `open_model` takes.
        top: Number of the largest nodes to list.
        structure: Also print every node, one per line.

    FileError, GraphError: the model cannot be read.

    Commands:
        deploykit inspect models/fashion/fashion.keras
        deploykit inspect model.pb --structure

    Example:
        >>> deploykit.inspect("fashion.keras").facts["layers"]
        12
    """

def inspect_records(
    folder: str | os.PathLike[str],
    *,
    name: str | None = None,
) -> RecordsInspection:
    """Show the features, counts, shards and first record of TFRecord data.

    Args:
        folder: where the shards lie, with or without an index.
        name: Name of the records, if DIR contains records of several names.

    FileError: there are no records, or they cannot be read. GraphError: they are of no known form,
    or their index is damaged. VerificationError: the first record is damaged.

    Commands:
        deploykit records inspect records
        deploykit records inspect records --name train

    Example:
        >>> _ = deploykit.convert_records("test_1000.npz", "records")
        >>> sorted(deploykit.inspect_records("records").features)
        ['images', 'label']
    """

def label(
    image: ImageLike,
    model: ModelLike,
    labels: str | os.PathLike[str] | Sequence[str] | None = None,
    how: LabelOptions = ...,
    *,
    input_mean: float | None = None,
    input_std: float | None = None,
    input_height: int | None = None,
    input_width: int | None = None,
    preprocess: PreprocessLike | None = None,
    top: int = 5,
    allow_ops: Sequence[str] = (),
    inputs: Sequence[str] = (),
    outputs: Sequence[str] = (),
    tags: Sequence[str] = (),
    signature: str | None = None,
    pins: Mapping[str, str] = ...,
    graph: str | Path | None = None,
) -> ImageLabels:
    """Classify an image with a model and its labels.

    Takes the flags of TensorFlow's label_image, and more.

    IMAGE is a JPEG, PNG, BMP or GIF file. It is resized to the model's input size (bilinear, as in
    label_image), and each pixel x becomes (x - mean) / std. Mean and std are 0 and 255, as in
    label_image. If the model rescales its inputs itself, pixels are scaled to the range that the
    model expects, and a warning states both ranges. With `preprocess`, the image is prepared as in
    calibrate and benchmark. --json shows the preprocessing in the form of such a file. The model
    metadata file X.pb.json may contain preprocessing and labels.

    Args:
        image: the path of a JPEG, PNG, BMP or GIF file, or an array [height, width] or [height,
            width, channels] of whole numbers from 0 to 255; of 1, 3 or 4 channels.
        model: Model that names the image.
        labels: File with the class names, one per line [default: from the model metadata file].
        how: what becomes of the image.

    FileError: a file is missing or cannot be read. GraphError: the image cannot be decoded, the
    model takes no image, gives no scores, or has no labels. RefusedError: it acts on files or
    processes.

    Commands:
        deploykit label photo.jpg --model model.pb --labels labels.txt
        deploykit label photo.jpg --model model.pb --top 3 --preprocess 0..1

    Example:
        >>> photo = (255 * np.load("test_1000.npz")["images"][0]).astype("uint8")
        >>> found = deploykit.label(photo, "fashion.keras", labels=list("0123456789"), top=1)
        >>> found.predictions[0]["label"]
        '9'
    """

def list_transforms(
    name: str | None = None,
) -> TransformList:
    """List the transforms, or explain one.

    With NAME, its parameters are explained too. NAME may be your own transform,
    package.module:function.

    Args:
        name: a transform, or `package.module:function`, which is one of your own; default: all,
            their other names included.

    PipelineError: there is no such transform.

    Commands:
        deploykit transforms
        deploykit transforms fold_batch_norms

    Example:
        >>> found = deploykit.list_transforms("round_weights")
        >>> [each["name"] for each in found.transforms[0]["parameters"]]
        ['num_steps']
        >>> "fold_batch_norms" in deploykit.list_transforms().names
        True
    """

def load_test(
    address: str,
    model: str,
    data: str | os.PathLike[str] | Mapping[str, ArrayLike],
    how: LoadTestOptions = ...,
    connection: Connection = ...,
    *,
    version: int | None = None,
    version_label: str = '',
    signature: str | None = None,
    preprocess: PreprocessLike | None = None,
    batch: int = 1,
    concurrency: Sequence[int] = (),
    rate: float | None = None,
    latency_limit: float | None = None,
    seconds: float = 10,
    processes: int = 1,
    tls: bool = False,
    ca: str | None = None,
    certificate: str | None = None,
    key: str | None = None,
    server_name: str | None = None,
    timeout: float = 60,
    retries: int = 2,
    protocol: ServingProtocol = 'tensorflow',
) -> LoadTest:
    """Measure how a server handles load.

    Works with any server that has the TensorFlow Serving API or, with `protocol` v2, the Open
    Inference Protocol (KServe v2). With `rate`, latency is measured from the scheduled send time of
    a request, so it includes the wait behind a stalled server. No request is retried.

    Args:
        address: `host:port` of gRPC, or `unix:path`; with `protocol="v2"` also a URL of HTTP.
        model: the name under which it is served.
        data: Samples to send one after another: a .npz file of arrays by input name, a folder of
            TFRecords, images or CSV files, or DIR/NAME if DIR contains records of several names.
        how: which version is asked, and with which load.
        connection: how the server is spoken to.

    Error: several kinds of load are asked for. CallError: there is no such server, model or
    version, or the model refuses the first call. FileError, GraphError: the data do not fit.

    Commands:
        deploykit load-test localhost:8500 fashion
            --data models/fashion/test_1000.npz --concurrency 1,2,4
        deploykit load-test localhost:8500 fashion --data photos
            --preprocess 0..1 --latency-limit 50

    Example:
        >>> with deploykit.serve("models", port=0) as server:
        ...     found = deploykit.load_test(
        ...         server.address, "half_plus_two", {"x": [[2.0]]}, concurrency=[1], seconds=0.2
        ...     )
        >>> [each.callers for each in found.loads], found.loads[0].failed
        ([1], 0)
    """

def optimize(
    model: ModelLike,
    how: VerifyOptions = ...,
    *,
    data: DataLike | None = None,
    preprocess: PreprocessLike | None = None,
    labels: LabelsLike | None = None,
    shapes: Mapping[str, Sequence[int]] = ...,
    input_range: tuple[float, float] = ...,
    allow_ops: Sequence[str] = (),
    tolerance: float | None = None,
    allow_unverified: bool = False,
    output: PathLike | None = None,
    force: bool = False,
    verify: bool = False,
    inputs: Sequence[str] = (),
    outputs: Sequence[str] = (),
    tags: Sequence[str] = (),
    signature: str | None = None,
    pins: Mapping[str, str] = ...,
    graph: str | Path | None = None,
) -> Graph:
    """Make a model smaller and faster without changing its outputs.

    Runs inline_functions, strip_unused_nodes, remove_nodes, fold_constants, fold_batch_norms,
    merge_duplicate_nodes and sort_by_execution_order.

    deploykit loads and runs the new file once. Nothing is written if its outputs differ from those
    of the model as it was read, or if they could not be compared.

    Args:
        model: whatever `open_model` takes.
        how: on which inputs the result is compared, and against which bar.
        output: a `.pb` file to write too.
        force: Replace an existing output file.
        verify: whether the result is compared with the model where no file is written, too. What is
            written is always loaded, run and compared first.

    GraphError: the model is not sound, or the data do not fit its inputs. VerificationError: the
    result differs, or nothing could be compared. RefusedError: the model acts on files or
    processes.

    Commands:
        deploykit optimize fashion.pb -o optimized.pb
        deploykit optimize fashion.pb -o a.pb --data models/fashion/test_1000.npz

    Example:
        >>> graph = deploykit.optimize("fashion.keras", verify=True)
        >>> graph.report.verification.passed
        True
    """

def placement(
    model: ModelLike,
    *,
    feeding: BenchmarkInputs = ...,
    shapes: Mapping[str, Sequence[int]] = ...,
    data: DataLike | None = None,
    input_range: tuple[float, float] = ...,
    allow_ops: Sequence[str] = (),
    batch: int | None = None,
    device: str = 'cpu',
    cpu_devices: int = 1,
    soft_placement: bool = True,
    engine: Literal['tensorflow', 'openvino'] | None = None,
    inputs: Sequence[str] = (),
    outputs: Sequence[str] = (),
    tags: Sequence[str] = (),
    signature: str | None = None,
    pins: Mapping[str, str] = ...,
    graph: str | Path | None = None,
) -> Placement | EnginePlacement:
    """Show on which device each node of a model really runs.

    Runs the model and shows the graph that TensorFlow executed after folding and fusing nodes. Each
    node has its requested and its actual device. Copies of tensors between devices are listed with
    their bytes per run, and so are nodes that silently ran on another device.

    In OpenVINO, everything runs on the CPU. The result shows OpenVINO's ops with their precisions
    (u8 and i8 are 8 bits), the number of int8 layers, and the number of pure type conversions.

    To try other devices, use set_device of deploykit transform.

    Args:
        model: whatever `open_model` takes.
        feeding: data or made-up values.
        batch: Samples in a batch [default: the model's fixed batch, or 1].
        device: Devices that TensorFlow may see; all: every GPU.
        cpu_devices: Present the CPU as this many devices, up to 64, to try a placement without a
            GPU.
        soft_placement: Fail if a node cannot run on its requested device.
        engine: Execution engine; openvino runs everything on the CPU and shows its own graph
            [default: the one that the model was written for, else tensorflow].

    Sizes of copies are in bytes a run.

    FileError, GraphError: the model or the data cannot be read, an input has no known shape,
    TensorFlow cannot run the model, or, without `soft_placement`, a node cannot have its device.
    RefusedError: an op acts on files or processes. LimitError: TensorFlow died or hung.

    Commands:
        deploykit placement models/fashion/fashion.keras
        deploykit placement model.pb --device gpu --no-soft-placement

    Example:
        >>> found = deploykit.placement("fashion.keras")
        >>> found.fallbacks, found.copied_bytes
        ((), 0)
    """

def plan(
    source: str | os.PathLike[str],
    model: str | None = None,
    data: str | os.PathLike[str] | Mapping[str, ArrayLike] | None = None,
    how: PlanOptions = ...,
    connection: Connection = ...,
    *,
    rate: float | None = None,
    latency_limit: float | None = None,
    replicas: tuple[int, int] = ...,
    survive: Literal['nothing', 'replica', 'zone'] = 'nothing',
    zones: int = 3,
    cores: int | None = None,
    price: float | None = None,
    manifests: str | os.PathLike[str] | None = None,
    version: int | None = None,
    version_label: str = '',
    signature: str | None = None,
    preprocess: PreprocessLike | None = None,
    batch: int = 1,
    seconds: float = 5,
    processes: int = 1,
    tls: bool = False,
    ca: str | None = None,
    certificate: str | None = None,
    key: str | None = None,
    server_name: str | None = None,
    timeout: float = 60,
    retries: int = 2,
    protocol: ServingProtocol = 'tensorflow',
) -> ReplicaPlan:
    """Estimate the number of server replicas for a target request rate.

    SOURCE is the address of a server, which is measured as one replica. Run it alone, on the
    hardware of one replica. Any server with the TensorFlow Serving API works. The measured service
    times then drive a queueing simulation of many replicas. To check the estimate, the server gets
    the load of one replica. SOURCE may also be a file that deploykit load-test or deploykit
    benchmark --scenario server wrote with -o; then MODEL is optional.

    P99 assumes that requests are distributed to replicas at random, as in Kubernetes. The table
    also shows p99 with a least-loaded balancer. Exits with 5 if no number of replicas is enough, or
    if the server misses the estimate.

    Args:
        source: `host:port` of gRPC, or `unix:path`; or a file that `load-test` or `benchmark
            --scenario server` wrote with `-o`, instead of a server.
        model: the name under which it is served; of a file it may be left out.
        data: Samples to send one after another: a .npz file of arrays by input name, a folder of
            TFRecords, images or CSV files, or DIR/NAME if DIR contains records of several names.
        how: the rate, the limit, and what else the plan is to know.
        connection: how the server is spoken to.

    Error: what is asked for contradicts itself. CallError: there is no such server, model or
    version, or the model refuses the first call. VerificationError: the server could not be
    measured. FileError, GraphError: the data, the file or the manifests do not fit.

    Commands:
        deploykit plan localhost:8500 fashion --data models/fashion/test_1000.npz
            --rate 5000 --latency-limit 50
        deploykit plan load.json --rate 5000 --latency-limit 50 --survive zone
        deploykit plan localhost:8500 fashion --data models/fashion/test_1000.npz
            --rate 5000 --latency-limit 50 --manifests served --plot plan.png

    Example:
        >>> found = deploykit.plan("load.json", rate=5000, latency_limit=60)
        >>> found.size.replicas, found.problem
        (87, '')
    """

def predict(
    address: str,
    model: str,
    inputs: Mapping[str, ArrayLike | os.PathLike[str]] | Sequence[str] | str,
    how: PredictOptions = ...,
    connection: Connection = ...,
    *,
    version: int | None = None,
    version_label: str = '',
    signature: str | None = None,
    outputs: Sequence[str] = (),
    preprocess: PreprocessLike | None = None,
    labels: str | os.PathLike[str] | Sequence[str] | None = None,
    top: int | None = None,
    tls: bool = False,
    ca: str | None = None,
    certificate: str | None = None,
    key: str | None = None,
    server_name: str | None = None,
    timeout: float = 60,
    retries: int = 2,
    protocol: ServingProtocol = 'tensorflow',
) -> Prediction:
    """Send inputs to a served model and show its outputs.

    Works with any server that has the TensorFlow Serving API or, with `protocol` v2, the Open
    Inference Protocol (KServe v2). VALUE is described at `given`. If the model decodes images
    itself (deploykit export `preprocess`), the image file is sent as it is. Otherwise it is decoded
    and resized before sending, as in `deploykit calibrate` and `benchmark`.

    Args:
        address: `host:port` of gRPC, or `unix:path`; with `protocol="v2"` also a URL of HTTP.
        model: the name under which it is served.
        inputs: by name, an array or nested list as the signature takes it, where the axis of the
            batch may be left out; a text, for an input of texts; or the path of a `.npy` file or of
            an image, which is decoded and resized as `calibrate` and `benchmark` do it. For an
            input of texts, or of photos as files, a `pathlib.Path` is a file whose bytes are sent.
            Or a list of `[NAME=]VALUE`, as the command line takes it.
        how: which version and signature are asked, and what is shown.
        connection: how the server is spoken to.

    CallError: there is no such server, model or version, or the model refuses the inputs.
    FileError, GraphError: an input is missing or not known, or what is given does not fit it.

    Commands:
        deploykit predict localhost:8500 fashion boot.png
        deploykit predict localhost:8500 fashion --input boot.png --preprocess 0..1
        deploykit predict localhost:8500 half_plus_two --input 2.0
        deploykit predict http://localhost:8000 resnet --protocol v2
            --input x=images.npy

    Example:
        >>> with deploykit.serve("models", port=0) as server:
        ...     found = deploykit.predict(server.address, "half_plus_two", {"x": [[2.0], [4.0]]})
        >>> found.outputs["y"].tolist()
        [[3.0], [4.0]]
    """

def quantize(
    model: ModelLike,
    how: QuantizeOptions = ...,
    *,
    mode: QuantizationMode = 'auto',
    min_sqnr: float | None = None,
    prefer: Literal['accuracy', 'speed'] = 'accuracy',
    metric: str = 'top1',
    max_drop: float = 0.01,
    keep_float: Sequence[str] = (),
    isa: Isa = 'auto',
    engine: Literal['auto', 'tensorflow', 'openvino'] = 'tensorflow',
    batch: int | None = None,
    threads: tuple[int, int] | None = None,
    budget: float = 4,
    whole_tokens: bool = False,
    group_by: str | None = None,
    allow_low_accuracy: bool = False,
    allow_float: bool = False,
    minimum_size: int = 1024,
    skip: Sequence[str] = (),
    comparison: VerifyOptions = ...,
    data: DataLike | None = None,
    preprocess: PreprocessLike | None = None,
    labels: LabelsLike | None = None,
    shapes: Mapping[str, Sequence[int]] = ...,
    input_range: tuple[float, float] = ...,
    allow_ops: Sequence[str] = (),
    tolerance: float | None = None,
    allow_unverified: bool = False,
    calibration: DataLike | None = None,
    evaluation: DataLike | None = None,
    output: PathLike | None = None,
    force: bool = False,
    inputs: Sequence[str] = (),
    outputs: Sequence[str] = (),
    tags: Sequence[str] = (),
    signature: str | None = None,
    pins: Mapping[str, str] = ...,
    graph: str | Path | None = None,
) -> Graph:
    """Optimize a model and quantize it to int8.

    With `calibration`, layers run in int8. Layers that are too inaccurate or slower in int8 are
    kept in float32. Without `calibration`, only the weights are stored in 8 bits: the file shrinks
    to about a quarter, and the speed stays the same.

    A quantization-aware model states its int8 scales (fake-quants, as TF-MOT leaves them). Its
    layers run in int8 with these scales, without `calibration`.

    int8 is kept unless it is significantly slower than float32 or too inaccurate. If int8 is not
    kept, or there is nothing to quantize, the command writes nothing and exits with status 5.

    The result is compared with the original before it is written. After Ctrl-C, the same command
    continues the search.

    Args:
        model: whatever `open_model` takes.
        how: what the 8-bit graph has to be.
        comparison: without calibration, on which inputs the result is compared with the original.
        calibration: At least 64 representative samples: a .npz file of arrays by input name, a
            folder of TFRecords, images or CSV files, or DIR/NAME if DIR contains records of several
            names. Every fourth sample is held out to check the result.
        evaluation: Samples with labels, to measure `metric`.
        output: a `.pb` file to write too. With calibration, what is found meanwhile is kept beside
            it, and the same call goes on after an interruption.
        force: Replace an existing output file.

    NotQuantizedError: float32 is the right result, as int8 is significantly slower, too inaccurate,
    or there is nothing to quantize; with `allow_float`, the optimized float32 graph is returned.
    VerificationError: the float model's own answers cannot be right. GraphError: the samples do not
    fit, or lead to NaN or Inf; an option does nothing here, or an engine cannot be had or computes
    the model otherwise than TensorFlow. RefusedError: the model acts on files or processes.

    Commands:
        deploykit quantize fashion.pb -o weights.pb
        deploykit quantize fashion.pb -o int8.pb
            --calibration models/fashion/test_1000.npz

    Example:
        >>> graph = deploykit.quantize("fashion.keras", min_sqnr=20)
        >>> graph.report.verification.passed
        True
    """

def report(
    results: ResultLike | Sequence[ResultLike],
    output: str | os.PathLike[str] | None = None,
    force: bool = False,
) -> ReportPage:
    """Show results as one HTML page.

    DIR is a folder of deploykit ship. RESULT.json is the output of --json or -o of benchmark, tune,
    quantize, load-test, plan, placement, accuracy, verify, optimize, check or export. Several
    results are shown one after another.

    The page is one file that loads nothing else. It follows the reader's light or dark theme, can
    be printed, and has at most 2 MB. Long tables are truncated, with a reference to the full data
    in the JSON.

    Args:
        results: the folder that `ship` wrote; a JSON file that a command wrote; a value that a
            function such as `benchmark`, `tune`, `quantize`, `load_test` or `placement` returned,
            or its document; or several of these in a list.
        output: File to write [default: DIR/report.html, or RESULT.html beside RESULT.json].
        force: Replace an existing output file.

    FileError: a file cannot be read, or the page cannot be written. GraphError: something is no
    result that a report shows, or of another format; the sentence names it.

    Commands:
        deploykit report shapes.ship
        deploykit report before.json after.json -o report.html

    Example:
        >>> page = deploykit.report("before.json")
        >>> page.kinds
        ('benchmark',)
    """

def sensitivity(
    model: ModelLike,
    calibration: DataLike,
    *,
    preprocess: PreprocessLike | None = None,
    ranges: str | os.PathLike[str] | None = None,
    isa: Isa = 'auto',
    allow_ops: Sequence[str] = (),
    inputs: Sequence[str] = (),
    outputs: Sequence[str] = (),
    tags: Sequence[str] = (),
    signature: str | None = None,
    pins: Mapping[str, str] = ...,
    graph: str | Path | None = None,
) -> Sensitivity:
    """Rank the layers by the noise that each adds in int8.

    Optimizes and calibrates the model like quantize, then runs it with one int8 layer at a time and
    measures the signal-to-noise ratio of the outputs. The lower the ratio, the noisier the layer.
    Layers without an int8 form are listed with the reason.

    Args:
        model: whatever `open_model` takes.
        calibration: Samples: a .npz file of arrays by input name, a folder of TFRecords, images or
            CSV files, or DIR/NAME if DIR contains records of several names. Every fourth sample is
            held out to measure the noise.
        preprocess: Preprocessing of file features into model inputs, such as image size and value
            range: a JSON file, JSON text, or only the range (0..1, -1..1, 0..255, photo=0..1)
            [default: from the model metadata file X.pb.json, or from the model itself].
        ranges: Ranges of the optimized model from deploykit calibrate [default: measured on the
            samples].
        isa: Instruction set of the target machine; auto: that of this machine.
        allow_ops: Run this op although it reads or writes files or starts processes; may be
            repeated.

    FileError, GraphError: the samples do not fit, or lead to NaN or Inf. MismatchError: the ranges
    are of another model.

    Commands:
        deploykit sensitivity model.pb --calibration models/fashion/test_1000.npz
        deploykit sensitivity model.pb --calibration photos --preprocess 0..1 --top 10

    Example:
        >>> found = deploykit.sensitivity("fashion.keras", "test_1000.npz")
        >>> len(found.ranking), found.samples
        (12, (750, 16))
    """

def serve(
    base_dir: str | os.PathLike[str] | None = None,
    flags: ServerFlags = ...,
    *,
    model_config_file_poll_wait_seconds: float = 0,
    file_system_poll_wait_seconds: float = 1,
    max_num_load_retries: int = 5,
    load_retry_interval_micros: int = 60000000,
    allow_version_labels_for_unavailable_models: bool = False,
    host: str = '127.0.0.1',
    port: int = 8500,
    grpc_socket_path: str = '',
    grpc_channel_arguments: str = '',
    rest_api_timeout_in_ms: int = 30000,
    rest_plain: bool = False,
    rest_api_enable_cors_support: bool = False,
    max_json_mb: int = 64,
    allow_reload: bool = False,
    access_log: str = '',
    enable_model_warmup: bool = True,
    num_request_iterations_for_warmup: int = 1,
    enable_serialization_as_tensor_content: bool = False,
    max_in_flight: int = 64,
    max_queue_wait_ms: float = 0,
    lame_duck_seconds: float = 3,
    drain_seconds: float = 30,
    workers: int = 1,
    model_base_path: str | os.PathLike[str] | None = None,
    model_name: str = '',
    model_config_file: str | os.PathLike[str] | None = None,
    rest_api_port: int | None = None,
    grpc_max_threads: int | None = None,
    slots: int | None = None,
    max_message_mb: int = 256,
    ssl_config_file: str | os.PathLike[str] | None = None,
    monitoring_config_file: str | os.PathLike[str] | None = None,
    enable_batching: bool | None = None,
    batching_parameters_file: str | os.PathLike[str] | None = None,
    tensorflow_intra_op_parallelism: int | None = None,
    tensorflow_inter_op_parallelism: int | None = None,
    tensorflow_session_parallelism: int | None = None,
    engine: Literal['auto', 'tensorflow', 'openvino'] = 'auto',
    allow_ops: Sequence[str] = (),
    tuned: str | os.PathLike[str] | RunConfig | None = None,
) -> RunningServer:
    """Serve models over TensorFlow Serving's gRPC and REST API.

    BASE_DIR holds the versions of one model (folders with numbers as names), or several such
    models. It may also be a folder of deploykit ship. Then its model is served under its name, with
    the settings from deploykit tune; flags and `tuned` override them.

    The flags are those of TensorFlow Serving and some more, written as --flag=value, --flag value,
    --switch or --noswitch. A flag of TensorFlow Serving that has no effect here gives a warning.

    With several workers, each loads new versions by itself. Until all have done so, some still
    answer with the old version. Each worker counts its own requests for Prometheus. Reload over
    gRPC is not available; change the file of `model_config_file` instead.

    After SIGTERM, the health check reports NOT_SERVING. Requests are still answered for
    `lame_duck_seconds`, or up to twice as long if more arrive. Then new requests are refused
    (UNAVAILABLE, 503), and the server stops once all running ones are answered. Ctrl-C skips the
    first phase; a second signal stops the server at once.

    Args:
        base_dir: a folder with the versions of one model (folders with numbers for names), or with
            models that hold such folders; or what `deploykit ship` wrote: its model is served under
            its name, with what `tune` found for it; default: what `model_base_path` or
            `model_config_file` says.
        flags: the flags of TensorFlow Serving, and some more.
        tuned: Use the threads, concurrency, batching and environment from deploykit tune; flags and
            variables that are set override them.

    Error: flags contradict each other. FileError: a file or folder cannot be read, or a port is
    taken. GraphError: there is no model, and the message names the folder to give instead where
    there is one; or a list of models is none. A version that cannot be loaded is tried again.

    Commands:
        deploykit serve served --rest_api_port=8501
        deploykit serve --model_base_path=$PWD/served/fashion --model_name=fashion

    Example:
        >>> with deploykit.serve("models", port=0) as server:
        ...     found = deploykit.predict(server.address, "half_plus_two", {"x": [[2.0]]})
        >>> found.outputs["y"].tolist()
        [[3.0]]
    """

def ship(
    model: ModelLike,
    output: str | os.PathLike[str] | None = None,
    how: ShipOptions = ...,
    *,
    calibration: DataLike | None = None,
    evaluation: DataLike | None = None,
    labels: str | os.PathLike[str] | Sequence[str] | None = None,
    preprocess: PreprocessLike | None = None,
    name: str | None = None,
    goal: Goal = 'latency',
    max_drop: float = 0.01,
    budget: float = 8.0,
    device: DeviceKind = 'cpu',
    engine: Literal['auto', 'tensorflow', 'openvino'] = 'auto',
    manifests: Sequence[ManifestKind] = (),
    allow_low_accuracy: bool = False,
    input_range: tuple[float, float] = ...,
    allow_unverified: bool = False,
    allow_ops: Sequence[str] = (),
    from_stage: str | None = None,
    dry_run: bool = False,
    inputs: Sequence[str] = (),
    outputs: Sequence[str] = (),
    tags: Sequence[str] = (),
    signature: str | None = None,
    pins: Mapping[str, str] = ...,
    graph: str | Path | None = None,
) -> Shipped:
    """Turn a trained model into a served one with one command.

    Runs the other commands as stages, in this order: check, optimize, calibrate, quantize, verify,
    accuracy, placement, tune, benchmark, export, and a request to a served instance. The folder
    then contains model.pb, report.html, report.json, the settings from deploykit tune, and NAME/1
    for TensorFlow Serving. `deploykit serve DIR` uses all of it.

    The result of each stage is stored in the folder. After Ctrl-C the same command resumes; a later
    run only repeats stages whose inputs changed. A stage that is not worthwhile on this machine is
    skipped, and the report gives the reason.

    The table [ship] of a file deploykit.toml in the current folder may set every option; options on
    the command line override it.

    Args:
        model: whatever `open_model` takes.
        output: Folder to write [default: NAME.ship]. A later run in the same folder keeps what its
            inputs did not change.
        how: what is to be shipped, and what may be spent on it.
        from_stage: Repeat this stage and all later ones: check, optimize, calibrate, quantize,
            verify, accuracy, placement, tune, benchmark, export or serve.
        dry_run: Show the stages and their estimated duration without running them.

    `deploykit.serve(output)` serves it. FileError, GraphError: the model or the data cannot be
    read, do not fit each other, or the folder holds something else. VerificationError: the result
    computes something else than the model. RefusedError: it acts on files or processes.

    Commands:
        deploykit ship shapes.keras --calibration photos/train --evaluation photos/val
        deploykit ship shapes.keras -o shapes.ship --dry-run
        deploykit ship shapes.keras --from-stage tune

    Example:
        >>> data = {"calibration": "test_1000.npz", "evaluation": "test_1000.npz"}
        >>> found = deploykit.ship("fashion.keras", "fashion.ship", budget=3, **data)
        >>> found.figures["accuracy"]["after"]["value"] > 0.9
        True
    """

def status(
    address: str,
    model: str | None = None,
    *,
    version: int | None = None,
    version_label: str = '',
    connection: Connection = ...,
    tls: bool = False,
    ca: str | None = None,
    certificate: str | None = None,
    key: str | None = None,
    server_name: str | None = None,
    timeout: float = 60,
    retries: int = 2,
    protocol: ServingProtocol = 'tensorflow',
) -> ServerHealth | ServedModels | ModelVersions:
    """Show whether a server is healthy, or which models and versions it serves.

    ADDRESS is host:port for gRPC, or a URL for REST. With MODEL, shows its versions and their
    inputs and outputs. Without MODEL, REST lists all models of a deploykit server; TensorFlow
    Serving has no such list. gRPC queries the health service, which TensorFlow Serving only has if
    it was started with it. With `protocol` v2, shows whether the server is live and ready. Exits
    with 5 if the server is not serving, or a model has no available version.

    Args:
        address: `host:port` or `unix:path` of gRPC, or a URL of REST: `http://host:port`.
        model: the name under which it is served; default: over REST, all models, which a server of
            deploykit lists; over gRPC, the health service, which TensorFlow Serving has on request;
            with `protocol="v2"`, whether the server is live and ready.
        version: Version of the model [default: the newest].
        version_label: Choose the version by its label, such as stable.
        connection: how the server is spoken to.

    CallError: there is no such server, model or version.

    Commands:
        deploykit status localhost:8500
        deploykit status localhost:8500 fashion
        deploykit status http://localhost:8501
        deploykit status http://localhost:8000 resnet --protocol v2

    Example:
        >>> with deploykit.serve("models", port=0) as server:
        ...     found = deploykit.status(server.address, "half_plus_two")
        >>> found.versions[0].state
        'AVAILABLE'
        >>> found.signatures["serving_default"].inputs["x"].shape
        (-1, 1)
    """

def transform(
    model: ModelLike,
    transforms: str,
    how: VerifyOptions = ...,
    *,
    data: DataLike | None = None,
    preprocess: PreprocessLike | None = None,
    labels: LabelsLike | None = None,
    shapes: Mapping[str, Sequence[int]] = ...,
    input_range: tuple[float, float] = ...,
    allow_ops: Sequence[str] = (),
    tolerance: float | None = None,
    allow_unverified: bool = False,
    output: PathLike | None = None,
    force: bool = False,
    verify: bool = False,
    as_text: bool = False,
    dump: PathLike | None = None,
    inputs: Sequence[str] = (),
    outputs: Sequence[str] = (),
    tags: Sequence[str] = (),
    signature: str | None = None,
    pins: Mapping[str, str] = ...,
    graph: str | Path | None = None,
) -> Graph:
    """Run transforms on a graph, in the order given.

    Takes the same flags and transform string as transform_graph of the Graph Transform Tool.
    `deploykit transforms` lists the transforms, and `deploykit transforms NAME` explains one.

    If `verify` finds a difference, deploykit names the first step that changes the outputs too
    much, writes no out_graph, and exits with 5. With `dump`, DIR keeps the graphs before that step.

    Args:
        model: Graph to read.
        transforms: Transforms to run in order, such as 'fold_constants(ignore_errors=true)
            fold_batch_norms'; package.module:function is your own transform.
        how: with `verify`: on which inputs, and against which bar.
        output: Graph to write.
        force: Replace an existing output file.
        verify: Run the graph before and after. If the outputs differ, write nothing and name the
            step that caused it.
        as_text: Write the graph as text.
        dump: Write the graph after each step to this folder: DIR/01-NAME.pb and so on.

    PipelineError: the string does not parse. GraphError: a transform cannot be applied.
    RefusedError: the model acts on files or processes.
    VerificationError: the result differs, and the first step that breaks the bar is named; or
    nothing was compared.

    Commands:
        deploykit transform --in_graph=fashion.pb --out_graph=folded.pb
            --transforms='fold_constants fold_batch_norms' --verify
        deploykit transform --in_graph=fashion.pb --out_graph=small.pb
            --transforms=quantize_weights

    Example:
        >>> folded = deploykit.transform("fashion.pb", "fold_constants fold_batch_norms")
        >>> [(step.transform, step.nodes) for step in folded.report.steps][0]
        ('fold_constants', 89)
        >>> any(node.op == "Rsqrt" for node in folded)
        False
    """

def tune(
    model: ModelLike,
    how: TuneOptions = ...,
    *,
    batch: Sequence[int] | int = (),
    goal: Literal['latency', 'throughput'] = 'latency',
    latency_limit: float | None = None,
    engine: Literal['auto', 'tensorflow', 'openvino'] | None = None,
    budget: float = 2.8,
    feeding: BenchmarkInputs = ...,
    shapes: Mapping[str, Sequence[int]] = ...,
    data: DataLike | None = None,
    input_range: tuple[float, float] = ...,
    allow_ops: Sequence[str] = (),
    output: PathLike | None = None,
    force: bool = False,
    inputs: Sequence[str] = (),
    outputs: Sequence[str] = (),
    tags: Sequence[str] = (),
    signature: str | None = None,
    pins: Mapping[str, str] = ...,
    graph: str | Path | None = None,
) -> Recommendation:
    """Find faster settings for a model on this machine.

    Tries threads, oneDNN, work of the calling thread in oneDNN, keeping of freed memory in the C
    library, batch sizes and concurrency. It searches for the lowest median latency and for the
    highest throughput. Settings from environment variables are not changed. At the end, the best
    settings, and the same without one of their changes, are interleaved with TensorFlow's defaults.
    The results are from this comparison. Only significantly faster settings are recommended, with
    as few changes as possible.

    `deploykit benchmark --tuned` reads the written file. After Ctrl-C, the same command continues
    the search.

    In OpenVINO it tries threads, streams (one per concurrent call), memory and batch sizes.
    OpenVINO's outputs are compared with TensorFlow's first.

    Args:
        model: whatever `open_model` takes.
        how: what is sought, and how long that may take.
        feeding: data or made-up values.
        output: a JSON file to write too, which `load_tuned` reads. While this runs, the trials are
            kept beside it in `OUTPUT.state`, from which the next call goes on after Ctrl-C.
        force: Replace an existing output file.

    FileError: a file is missing, unreadable or cannot be written. GraphError: the model is not
    sound, an input has no known shape, or does not fit the data. RefusedError: an op acts on files
    or processes. LimitError: TensorFlow died or hung with its default settings, or in the end.

    Commands:
        deploykit tune model.pb
        deploykit tune model.pb --goal throughput --budget 10 -o tuned.json

    Example:
        >>> found = deploykit.tune("fashion.keras", budget=0.1, batch=8)
        >>> found.settings.batch
        8
    """

def verify(
    reference: ModelLike,
    result: ModelLike,
    how: VerifyOptions = ...,
    *,
    data: DataLike | None = None,
    preprocess: PreprocessLike | None = None,
    labels: LabelsLike | None = None,
    shapes: Mapping[str, Sequence[int]] = ...,
    input_range: tuple[float, float] = ...,
    allow_ops: Sequence[str] = (),
    tolerance: float | None = None,
    allow_unverified: bool = False,
    min_sqnr: float | None = None,
    inputs: Sequence[str] = (),
    outputs: Sequence[str] = (),
    tags: Sequence[str] = (),
    signature: str | None = None,
    pins: Mapping[str, str] = ...,
    graph: str | Path | None = None,
) -> Verification:
    """Compare the outputs of two models.

    Exits with 5 if the outputs of RESULT differ too much from those of REFERENCE. Also exits with 5
    if nothing was compared, because REFERENCE cannot run or has the same output for every input.

    Both run on the same inputs, without TensorFlow's graph optimizer. If an output is a Softmax,
    its input is compared too. In --json, infinite values (no difference at all) are null, and
    "verified" is false if nothing was compared.

    Args:
        reference: the model that is right; whatever `open_model` takes.
        result: the model to judge.
        how: on which inputs, and against which bar.
        min_sqnr: Smallest signal-to-noise ratio allowed, instead of --tolerance [default for a
            quantized RESULT: 15].

    A reference that does not run on made-up inputs gives `verified=False` with the reason.
    GraphError: TensorFlow cannot load the reference, or the data do not fit its inputs.

    Commands:
        deploykit verify fashion.pb optimized.pb --data models/fashion/test_1000.npz
        deploykit verify fashion.pb weights.pb --min-sqnr 20

    Example:
        >>> graph = deploykit.freeze("fashion.keras")
        >>> deploykit.verify(graph, deploykit.optimize(graph)).passed
        True
    """

def verify_records(
    folder: str | os.PathLike[str],
    *,
    name: str | None = None,
    processes: int | None = None,
) -> RecordsVerification:
    """Check every record, and the shards against their index.

    Exits with 5 if a checksum is wrong, if a shard is truncated, changed, missing or not listed, or
    if there is no record at all. Without an index, a shard that was truncated between two records
    looks complete; the result states this.

    Args:
        folder: where the shards lie.
        name: Name of the records, if DIR contains records of several names.
        processes: Number of processes, up to 1024 [default: one for each core].

    `check()` of what is returned raises VerificationError where there is a problem, or no record.
    FileError, GraphError: there is nothing to check, or the index is damaged.

    Commands:
        deploykit records verify records
        deploykit records verify records --name train --processes 4

    Example:
        >>> _ = deploykit.convert_records("test_1000.npz", "records")
        >>> deploykit.verify_records("records").passed
        True
    """

def write_input(
    data: str | os.PathLike[str],
    *,
    model: ModelLike | None = None,
    piping: InputPipelineOptions = ...,
    run_ops: Sequence[str] = (),
    init: Sequence[str] = (),
    simulated_compute_ms: float | None = None,
    preprocess: PreprocessLike | None = None,
    on_error: Literal['stop', 'skip'] = 'stop',
    shuffle: bool = False,
    cache: str | None = None,
    buckets: Sequence[int] = (),
    private_threads: int | None = None,
    service_workers: int | None = None,
    service_address: str | None = None,
    pipeline: str | InputFunction | None = None,
    batch: int | None = None,
    style: Literal['tfdata'] = 'tfdata',
    output: str | os.PathLike[str] | None = None,
    force: bool = False,
    inputs: Sequence[str] = (),
    outputs: Sequence[str] = (),
    tags: Sequence[str] = (),
    signature: str | None = None,
    pins: Mapping[str, str] = ...,
    graph: str | Path | None = None,
) -> WrittenInput:
    """Write the recommended tf.data function for a dataset to stdout or a file.

    DIR is a folder of TFRecords (deploykit records), of CSV files or of images, or an .npz file.
    The code imports only TensorFlow (and NumPy for .npz). It builds the same dataset that
    `deploykit benchmark --input tfdata` measures with the same options on this machine. To measure
    the file, run `deploykit benchmark MODEL --data DIR --pipeline FILE:dataset`, with FILE without
    .py.

    Args:
        data: a folder of TFRecords (`deploykit.convert_records`), of CSV files or of images, or an
            `.npz` file.
        model: Make batches that fit the inputs of this model [default: a tensor for each feature of
            the data].
        piping: how files are read: `preprocess`, `shuffle`, `cache`, `buckets` and
            `private_threads`.
        batch: Records in a batch [default: the model's fixed batch, or 32].
        style: Kind of input pipeline.
        output: File to write [default: stdout].
        force: Replace an existing output file.

    FileError: a file is missing, unreadable or cannot be written. GraphError: the data are of no
    known kind, or do not fit the model's inputs.

    Commands:
        deploykit input write photos --model model.pb --shuffle
        deploykit input write records --batch 32 -o input_pipeline.py

    Example:
        >>> found = deploykit.write_input("test_1000.npz", model="fashion.keras", batch=16)
        >>> "def " in found.text, found.pipeline.batch
        (True, 16)
    """
