# Written by `make docs` from the code: change that instead.

from collections.abc import Collection
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
from deploykit.api.check import ValidationReport as ValidationReport
from deploykit.api.comparison import VerifyOptions as VerifyOptions
from deploykit.api.diff import Differences as Differences
from deploykit.api.doctor import Diagnosis as Diagnosis
from deploykit.api.inspect import Inspection as Inspection
from deploykit.api.inspect_records import RecordsInspection as RecordsInspection
from deploykit.api.label import ImageLabels as ImageLabels
from deploykit.api.list_transforms import TransformList as TransformList
from deploykit.api.loadtest import LoadTest as LoadTest
from deploykit.api.plan import ReplicaPlan as ReplicaPlan
from deploykit.api.predict import Prediction as Prediction
from deploykit.api.record_options import Compression
from deploykit.api.record_options import OnError
from deploykit.api.record_options import RecordOptions as RecordOptions
from deploykit.api.transform import TransformGraph as TransformGraph
from deploykit.api.verify_records import RecordsVerification as RecordsVerification
from deploykit.api.write_input import WrittenInput as WrittenInput
from deploykit.batch_inference.infer_options import InferOptions as InferOptions
from deploykit.batch_inference.inferred import Inferred as Inferred
from deploykit.benchmarking.comparison.comparing import Speedups as Speedups
from deploykit.benchmarking.feeding import BenchmarkInputs as BenchmarkInputs
from deploykit.benchmarking.results import BenchmarkResult as BenchmarkResult
from deploykit.benchmarking.results import load_result as load_result
from deploykit.benchmarking.results import load_tuned as load_tuned
from deploykit.benchmarking.scenarios.timing import BenchmarkOptions as BenchmarkOptions
from deploykit.benchmarking.settings import RunConfig as RunConfig
from deploykit.benchmarking.sweep import RunConfigGrid as RunConfigGrid
from deploykit.benchmarking.tuning.recommendation import Recommendation as Recommendation
from deploykit.benchmarking.tuning.tune_options import TuneOptions as TuneOptions
from deploykit.calling.call_options import LabelOptions as LabelOptions
from deploykit.calling.call_options import LoadTestOptions as LoadTestOptions
from deploykit.calling.call_options import PredictOptions as PredictOptions
from deploykit.calling.server_status import ModelVersions as ModelVersions
from deploykit.calling.server_status import ServedModels as ServedModels
from deploykit.calling.server_status import ServerHealth as ServerHealth
from deploykit.correctness.result import Accuracy as Accuracy
from deploykit.exporting.deployment import Manifests as Manifests
from deploykit.exporting.export import ExportOptions as ExportOptions
from deploykit.exporting.export import Exported as Exported
from deploykit.exporting.manifests import ManifestKind
from deploykit.freezing.graph_files import load_graph as load_graph
from deploykit.freezing.graph_files import save_graph as save_graph
from deploykit.freezing.interface import ModelSource as ModelSource
from deploykit.freezing.open_model import OpenedModel as OpenedModel
from deploykit.freezing.open_model import open_model as open_model
from deploykit.input.input_result import InputResult as InputResult
from deploykit.input.piping import InputPipelineOptions as InputPipelineOptions
from deploykit.inspection.engine_placement import EnginePlacement as EnginePlacement
from deploykit.inspection.placement import Placement as Placement
from deploykit.planning.plan_options import PlanOptions as PlanOptions
from deploykit.quantization.calibration import Calibration as Calibration
from deploykit.quantization.calibration import RangeMethod
from deploykit.quantization.requested import QuantizationMode
from deploykit.quantization.requested import QuantizeOptions as QuantizeOptions
from deploykit.quantization.result import Quantized as Quantized
from deploykit.quantization.sensitivity import Sensitivity as Sensitivity
from deploykit.quantization.weights import WeightsInt8 as WeightsInt8
from deploykit.records import SourceKind
from deploykit.records.sets import ConvertedSets as ConvertedSets
from deploykit.reporting.page.report_page import ReportPage as ReportPage
from deploykit.rewriting.rewrite import Rewriting as Rewriting
from deploykit.serving.client.client import Client as Client
from deploykit.serving.client.connection import Connection as Connection
from deploykit.serving.client.connection import ServingProtocol
from deploykit.serving.client.endpoint import CallError as CallError
from deploykit.serving.server.process import RunningServer as RunningServer
from deploykit.serving.server.server_flags import ServerFlags as ServerFlags
from deploykit.shipping.ship_options import DeviceKind
from deploykit.shipping.ship_options import Goal
from deploykit.shipping.ship_options import ShipOptions as ShipOptions
from deploykit.shipping.shipped import Shipped as Shipped
from deploykit.transforms.core.errors import BugError as BugError
from deploykit.transforms.core.errors import CrashError as CrashError
from deploykit.transforms.core.errors import Error as Error
from deploykit.transforms.core.errors import FileError as FileError
from deploykit.transforms.core.errors import GraphError as GraphError
from deploykit.transforms.core.errors import LimitError as LimitError
from deploykit.transforms.core.errors import LoadError as LoadError
from deploykit.transforms.core.errors import MismatchError as MismatchError
from deploykit.transforms.core.errors import MissingPackageError as MissingPackageError
from deploykit.transforms.core.errors import NotQuantizedError as NotQuantizedError
from deploykit.transforms.core.errors import PipelineError as PipelineError
from deploykit.transforms.core.errors import RefusedError as RefusedError
from deploykit.transforms.core.errors import StepError as StepError
from deploykit.transforms.core.errors import UnverifiedError as UnverifiedError
from deploykit.transforms.core.errors import VerificationError as VerificationError
from deploykit.transforms.core.graph import Graph as Graph
from deploykit.transforms.core.int8.isa import Isa
from deploykit.transforms.core.running.child import ResourceLimits as ResourceLimits
from deploykit.verification.public_types import DataLike as DataLike
from deploykit.verification.public_types import ImageLike as ImageLike
from deploykit.verification.public_types import InputFunction
from deploykit.verification.public_types import LabelsLike as LabelsLike
from deploykit.verification.public_types import ModelLike as ModelLike
from deploykit.verification.public_types import ModelsLike as ModelsLike
from deploykit.verification.public_types import PathLike as PathLike
from deploykit.verification.public_types import PreprocessLike as PreprocessLike
from deploykit.verification.public_types import ResultLike as ResultLike
from deploykit.verification.samples import Dataset as Dataset
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
    labels: str | os.PathLike[str] | Sequence[str] | None = None,
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
    """Say how often models are right on labelled samples.

    Each MODEL runs on the same samples, in the engine that it was written for. Shares of right
    answers come with their 95 % confidence interval. The last MODEL is compared with the first,
    sample by sample: how much the metric changed, with its interval, how often both name the same
    class, how much noise its outputs have, and of which samples they say the most different things.
    Of one MODEL, its surest wrong answers are listed.

    Labels are class numbers, rows with a single 1 (one-hot), or names. Folders of photos are
    classes by their names in `labels`, or in what is kept beside a MODEL; without either, in their
    sorted order, if there are as many as the model scores. Without labels, two models or more are
    only compared with each other.

    --json has small pictures of these samples too, if they are photos.

    Args:
        models: whatever `open_model` takes; several in a list, or by name in a mapping.
        data: Samples with labels: a .npz file of arrays by input name and labels, a folder of
            TFRecords, CSV files or photos, of which each folder is a class, or DIR/NAME where DIR
            holds records of several names.
        preprocess: How the features of files become inputs, such as the size of images and the
            range of their values: a file, its JSON, or the range alone (0..1, -1..1, 0..255,
            photo=0..1) [default: what is kept beside the model, or what the model itself says].
        metric: top1, top5, mae, or a function of yours that takes the outputs by name and the
            labels.
        labels: Names of the model's classes, one a line, in the order of its scores: data that name
            classes, such as folders of photos, are understood by them [default: what is kept beside
            the model].
        group_by: Also report each group of samples. NAME is an array, column or feature with one
            text or integer per sample, or `folder` for images. [default: `group`, or image folders
            that are not the classes]
        worst: How many samples are listed of which the models say the most different things.
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

    Every model runs with every combination of settings. Several sessions of each are interleaved
    in random order, so that other load on the machine hits all of them alike. Each is warmed up
    until its latencies are steady. The run stops early once every comparison is conclusive.

    Each model is compared with the first one that has the same batch. It is "faster" by wall time,
    "slower" by wall time or CPU time, "no difference" above a percentage, or "undecided".

    With `data` DIR, files are read while the model runs: by Python, through queues and through
    tf.data. The result shows the rate of reading, the rate of the model, and which is the limit.

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
    output: str | os.PathLike[str] | None = None,
    force: bool = False,
    inputs: Sequence[str] = (),
    outputs: Sequence[str] = (),
    tags: Sequence[str] = (),
    signature: str | None = None,
    pins: Mapping[str, str] = ...,
    graph: str | Path | None = None,
) -> Calibration:
    """Record which values each tensor of a model takes.

    Runs the model on the data and writes a JSON file that can be edited: for each float tensor its
    smallest and largest value, and the mean and smallest value of each channel. Quantization
    spreads its 8 bits over these ranges.

    Args:
        model: whatever `open_model` takes; a GraphDef file is taken as it stands.
        data: At least 64 samples like those of real use: a .npz file of arrays by input name, a
            folder of TFRecords, images or CSV files, or DIR/NAME where DIR holds records of several
            names.
        preprocess: How the features of files become inputs, such as the size of images and the
            range of their values: a file, its JSON, or the range alone (0..1, -1..1, 0..255,
            photo=0..1) [default: what is kept beside the model, or what the model itself says].
        method: minmax: the whole range of the values; mse: the part of it that gives the smallest
            error in 8 bits, which runs the samples twice.
        batch: Samples in a batch [default: what the model demands, or 8].
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
    """Say whether a model is sound, before anything of it runs.

    Exits with 2 if it is not: a node that no op allows, an op that TensorFlow does not know and an
    output needs, a function without end, a file that asks for far more memory than it takes, or
    anything else for which TensorFlow's own importer refuses it. Exits with 3 if it is sound, but
    holds ops that act on files, the network or processes; of a SavedModel or a checkpoint, what
    stores its variables does not count. All findings are printed in any case.

    The bytes of the file are looked at before they are decoded, and TensorFlow works in a process
    of its own.

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
    with the same name and settings are compared, or else the only two with the same settings, or
    the only two.

    A verdict stands below the table. "slower": B takes more CPU time for a call, or more than 10 %
    longer by the wall clock. "faster": it is more than 10 % faster by the wall clock, because a
    machine itself varies by that much from one hour to the next. Two models that take turns in one
    `deploykit benchmark` need no such margin.

    `fail_below` 0.95 fails only if B is slower than that for sure, so the upper end of an interval
    counts: 0.9 with an interval from 0.8 to 1.0 passes, one from 0.86 to 0.94 fails. With
    `baseline`, a result that fails is not added.

    Args:
        a: a result of `deploykit.benchmark`, or the JSON file that its command writes.
        b: likewise.
        baseline: Compare A with earlier results of this machine in the file, and add it. The first
            makes the file.
        confidence: Confidence of the intervals, from 0.5 to 0.9999.
        fail_below: Exit with 5 if B is slower than this for sure, or nothing was compared. The
            first result of a new `baseline` passes.

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

    SOURCE is a folder of images, CSV files of numbers, lines of text between tabs, a .npz file, IDX
    files (MNIST), or files of CIFAR. The unpacked folder of CIFAR becomes records named train,
    validation (data_batch_5 of CIFAR-10) and test; other commands take one of them as --data
    DIR/train. The bytes of the shards do not depend on the number of processes. Beside them is
    NAME.index.json with the features, the number of records, and the SHA-256 of each shard. Records
    keep the order of the source, in which images are sorted by class: shuffle them for training.

    After an interruption, the same command continues; finished shards are kept.

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

    Exits with 0 if the graphs are equal, and with 5 if they differ. A summary comes first: nodes,
    ops by count, weights, inputs and outputs. Then each difference follows. A line starts with -
    for a node that only FIRST has, with + for one that only SECOND has, and with ~ for a node whose
    op, inputs, device or attributes differ.

    The order of nodes, attributes whose names start with an underscore, and versions are not
    compared. `deploykit verify` compares what the models compute.

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
    """Show the machine and the TensorFlow that models run on here.

    The machine and its limits, versions, how TensorFlow was built and is configured, the
    environment variables that change how it runs, and the GPU: its driver and the libraries that
    TensorFlow loads. If TensorFlow sees no GPU, the last line says why, and what to do.

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

    The folder BASE_DIR/NAME/N/ appears only when it is complete, under a new number, and is never
    replaced. The signatures of a SavedModel keep their names and those of their inputs and outputs;
    with `signature`, only that one is kept, as the default. Any other model gets one signature,
    serving_default, with the names of inputs and outputs in the graph. `signature_name`,
    `input_aliases` and `output_aliases` give it the names that existing clients send. With
    `preprocess`, serving_default takes photos as files (bytes), the signature pixels decoded ones
    (uint8), and the signature tensors what the model itself takes.

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
    output: str | os.PathLike[str] | None = None,
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
    .h5 file, or a graph that is frozen already (.pb, .pbtxt). Functions are inlined, and the
    contents of lookup tables go into the graph. A boolean placeholder with a name like is_training
    becomes false, unless it is an input.

    deploykit loads and runs the new file once, and compares it with the graph as it was read.
    Nothing is written if they differ, or if they could not be compared.

    Args:
        model: whatever `open_model` takes.
        how: on which inputs the written file is compared with the model.
        preprocess: How photos and other data become inputs, in the form that calibrate and
            benchmark take; other commands then find it there.
        labels: File with the names of the classes, one a line; label then finds them there.
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
    """Run a model over files of data, and write what it answers.

    DATA is a folder of TFRecords with their index, or DIR/NAME where it holds records of several
    names, a folder of photos or of CSV files, a CSV or Parquet file, or a .npz file of arrays by
    input name. It is cut into parts, of TFRecords the shards. Each worker takes the next part and
    writes its answers into the folder OUT as one file, whole or not at all, in which each row says
    which file and which row of DATA it is of. What a lost worker was at is done again. At the end,
    OUT/NAME.index.json lists all parts with their SHA-256, and the rows that were left out.

    After Ctrl-C or any other end, the same command goes on with the parts that are missing. On a
    cluster, all machines need deploykit, and see MODEL's results folder OUT and DATA under the same
    paths.

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
    """Show what is in a model, and what it costs.

    Its inputs, outputs, variables, parameters, ops, devices and functions; the batch norms that can
    be folded; the floating-point operations (multiplications and additions are counted one by one)
    and the memory at batch 1, as far as shapes are known without running the model.

    A GraphDef file is shown as it is. Any other model is frozen first, so it has no variables.

    Args:
        model: whatever `open_model` takes.
        top: How many of the largest nodes are listed.
        structure: Also print every node, one a line.

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
    """Show what records hold: features, counts, shards, and the first record.

    Args:
        folder: where the shards lie, with or without an index.
        name: Name of the records, if DIR holds records of several names.

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
    """Name what an image shows, with a model and its labels.

    Takes the flags of TensorFlow's label_image, and more.

    IMAGE is a JPEG, PNG, BMP or GIF file. It is resized to the size that the model takes (bilinear,
    as label_image does), and each pixel x becomes (x - mean) / std. Mean and std are label_image's
    0 and 255, unless the model itself rescales what it is fed: then the values that it wants are
    fed, and a warning says both. With `preprocess`, it is prepared as calibrate and benchmark
    prepare images. --json shows what was done, in the form of such a file. The file X.pb.json
    beside a graph X.pb may hold that, and the labels.

    Args:
        image: the path of a JPEG, PNG, BMP or GIF file, or an array [height, width] or [height,
            width, channels] of whole numbers from 0 to 255; of 1, 3 or 4 channels.
        model: Model that names the image.
        labels: File with the names of the classes, one a line [default: the labels that are kept
            beside the model].
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

    With NAME, its parameters are explained too; package.module:function is one of your own.

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
    Inference Protocol (KServe v2). With `rate`, the latency of a call starts when it should have
    been sent, so the time for which calls wait behind a stalled server counts. No call is repeated.

    Args:
        address: `host:port` of gRPC, or `unix:path`; with `protocol="v2"` also a URL of HTTP.
        model: the name under which it is served.
        data: Samples to send one after another: a .npz file of arrays by input name, a folder of
            TFRecords, images or CSV files, or DIR/NAME where DIR holds records of several names.
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
    """Make a model smaller and faster; its answers stay the same.

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

    Runs the model and shows what TensorFlow executed after it folded and fused nodes: each node
    with the device that the model asks for and the device that it got, the tensors that are copied
    between devices with their bytes for each run, and the nodes that silently ran on another
    device.

    In OpenVINO the CPU computes all. Shown are its ops with the precision that each computes in (u8
    and i8 are 8 bits), how many layers are in 8 bits, and how often numbers are only converted.

    To try other devices, set them with set_device of deploykit transform.

    Args:
        model: whatever `open_model` takes.
        feeding: data or made-up values.
        batch: Samples in a batch [default: what the model demands, or 1].
        device: Devices that TensorFlow may see; all: every GPU.
        cpu_devices: Present the CPU as this many devices, up to 64, to try a placement without a
            GPU.
        soft_placement: Fail if a node cannot run on the device that it asks for.
        engine: What computes; in openvino, one device computes all, and it is shown what that made
            of the graph [default: the one that the model was written for, else tensorflow].

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
    """Say how many replicas of a server a load takes.

    SOURCE is the address of a server, which counts as one replica and is measured: run it alone, on
    what each replica will have. Any server of the TensorFlow Serving API will do. Queues before
    many replicas are then simulated with what was measured, and the load that each of them would
    get is tried on the server, to compare. Or SOURCE is a file that deploykit load-test or
    deploykit benchmark --scenario server wrote with -o; then MODEL may be left out.

    P99 is that of replicas to which calls are dealt out at random, as by Kubernetes; beside it
    stands what a balancer reaches that sends each call to the least busy one. Exit status 5: no
    number of replicas will do, or the server does not do what was foreseen.

    Args:
        source: `host:port` of gRPC, or `unix:path`; or a file that `load-test` or `benchmark
            --scenario server` wrote with `-o`, instead of a server.
        model: the name under which it is served; of a file it may be left out.
        data: Samples to send one after another: a .npz file of arrays by input name, a folder of
            TFRecords, images or CSV files, or DIR/NAME where DIR holds records of several names.
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
    """Ask a served model for its answer.

    Works with any server that has the TensorFlow Serving API or, with `protocol` v2, the Open
    Inference Protocol (KServe v2). VALUES are what `given` takes. A photo is sent as the file it is
    where the model decodes it itself (deploykit export `preprocess`); else it is decoded and
    resized here, as by `deploykit calibrate` and `benchmark`.

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
    """Optimize a model and put it in 8 bits.

    With `calibration`, layers run in int8. Layers that are too inaccurate or slower in int8 are
    kept in float32. Without `calibration`, only the weights are stored in 8 bits: the file shrinks
    to about a quarter, and the speed stays the same.

    A quantization-aware model states its int8 scales (fake-quants, as TF-MOT leaves them). Its
    layers run in int8 with these, without `calibration`.

    int8 is kept unless it is significantly slower than float32 or too inaccurate. Then, and where
    there is nothing to quantize, the command writes nothing and exits with status 5.

    The result is compared with the original before it is written. After Ctrl-C, the same command
    continues the search.

    Args:
        model: whatever `open_model` takes.
        how: what the 8-bit graph has to be.
        comparison: without calibration, on which inputs the result is compared with the original.
        calibration: At least 64 samples like those of real use: a .npz file of arrays by input
            name, a folder of TFRecords, images or CSV files, or DIR/NAME where DIR holds records of
            several names. Every fourth sample is kept aside to check the result.
        evaluation: Samples with labels, on which `metric` is taken.
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
    """Show what was found as one HTML page.

    DIR is what deploykit ship wrote. RESULT.json is a document that a command wrote with --json
    or -o: of benchmark, tune, quantize, load-test, plan, placement, accuracy, verify, optimize,
    check or export. Several are shown one after another.

    The page is one file that loads nothing else. It is light or dark as its reader has it, it
    prints, and it is at most 2 MB: what it leaves out of long tables stands in the JSON, and it
    says where.

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
    """Rank the layers by the noise that each adds in 8 bits.

    Optimizes and calibrates the model as quantize does, then runs it with one layer at a time in 8
    bits and measures the signal-to-noise ratio of the answers: the lower it is, the noisier is the
    layer. Layers that cannot be in 8 bits are listed with the reason.

    Args:
        model: whatever `open_model` takes.
        calibration: Samples: a .npz file of arrays by input name, a folder of TFRecords, images or
            CSV files, or DIR/NAME where DIR holds records of several names. Every fourth sample is
            kept aside to measure the noise on.
        preprocess: How the features of files become inputs, such as the size of images and the
            range of their values: a file, its JSON, or the range alone (0..1, -1..1, 0..255,
            photo=0..1) [default: what is kept beside the model, or what the model itself says].
        ranges: Ranges of the optimized model that deploykit calibrate wrote [default: found on the
            samples].
        isa: Instruction set that the 8-bit layers are made for; auto is that of this machine.
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
    models. Or it is what deploykit ship wrote: then its model is served under its name, with the
    settings that deploykit tune found for it; flags and `tuned` win.

    The flags are those of TensorFlow Serving and some more, written as --flag=value, --flag value,
    --switch or --noswitch. A flag of TensorFlow Serving that has no effect here gives a warning.

    With several workers, each looks for new versions itself: until all have seen one, some answer
    with the old version and others with the new one. Each counts its own calls on the page for
    Prometheus. They take no reload over gRPC; change the file of `model_config_file` instead.

    After SIGTERM, health says NOT_SERVING and calls are answered for `lame_duck_seconds`, or up to
    twice that time while they come. Then new calls are refused (UNAVAILABLE, 503), and the server
    stops when all running ones are answered. Ctrl-C leaves out the first part; a second signal
    stops the server at once.

    Args:
        base_dir: a folder with the versions of one model (folders with numbers for names), or with
            models that hold such folders; or what `deploykit ship` wrote: its model is served under
            its name, with what `tune` found for it; default: what `model_base_path` or
            `model_config_file` says.
        flags: the flags of TensorFlow Serving, and some more.
        tuned: Take threads, calls at the same time, batches and environment from what deploykit
            tune found; flags and variables that are set win.

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
    """Take a trained model to a served one, with one command.

    The stages are those of the other commands, in order: check, optimize, calibrate, quantize,
    verify, accuracy, placement, tune, benchmark, export, and a request to a served instance. The
    folder then holds model.pb, report.html, report.json, what deploykit tune found, and NAME/1,
    which TensorFlow Serving loads; `deploykit serve DIR` uses all of it.

    What each stage found is kept in the folder: after Ctrl-C the same command goes on, and a later
    one only does what its inputs changed. A stage that does not pay on this machine is left out,
    and the report says why.

    A file deploykit.toml in the current folder may hold every option, in a table [ship]; options on
    the command line win.

    Args:
        model: whatever `open_model` takes.
        output: Folder to write [default: NAME.ship]. A later run in the same folder keeps what its
            inputs did not change.
        how: what is to be shipped, and what may be spent on it.
        from_stage: Do this stage and all after it anew: check, optimize, calibrate, quantize,
            verify, accuracy, placement, tune, benchmark, export or serve.
        dry_run: Show what would be done, and about how long it takes; run nothing.

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

    ADDRESS is host:port of gRPC, or a URL of REST. With MODEL, its versions and their inputs and
    outputs are shown. Without MODEL, REST lists all models of a server of deploykit; TensorFlow
    Serving has no such list. gRPC asks the health service, which TensorFlow Serving offers only if
    it was started so. With `protocol` v2, it shows whether the server is live and ready. Exit
    status 5: the server is not serving, or a model has no available version.

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

    Takes the flags and the transform string of the Graph Transform Tool's transform_graph.
    `deploykit transforms` lists the transforms, `deploykit transforms NAME` explains one.

    If `verify` finds a difference, it names the first step that changes the answers too much,
    writes no out_graph, and exits with 5; with `dump`, DIR keeps the graphs before that step.

    Args:
        model: Graph to read.
        transforms: Transforms to run in order, such as 'fold_constants(ignore_errors=true)
            fold_batch_norms'; package.module:function is one of your own.
        how: with `verify`: on which inputs, and against which bar.
        output: Graph to write.
        force: Replace an existing output file.
        verify: Run the graph before and after; if the answers differ, write nothing and name the
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
    output: str | os.PathLike[str] | None = None,
    force: bool = False,
    inputs: Sequence[str] = (),
    outputs: Sequence[str] = (),
    tags: Sequence[str] = (),
    signature: str | None = None,
    pins: Mapping[str, str] = ...,
    graph: str | Path | None = None,
) -> Recommendation:
    """Find settings with which a model runs faster on this machine.

    It tries threads, oneDNN, whether the calling thread does a share of oneDNN's work, whether the
    C library keeps freed memory, batches, and calls at the same time: for the lowest median latency
    and for the most items a second. Settings that the environment has already stay as they are. At
    the end, the best settings, and the same without one of their changes, take turns with
    TensorFlow's defaults: the figures shown are of this comparison, and only what is faster for
    sure is recommended, with as few changes as it takes.

    `deploykit benchmark --tuned` takes the file. After Ctrl-C, the same command continues the
    search.

    In OpenVINO it tries threads, streams (a stream for each call at the same time), the memory and
    batches; the answers of OpenVINO are compared with those of TensorFlow first.

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
    """Compare what two models compute.

    Exits with 5 if the outputs of RESULT differ too much from those of REFERENCE, and if nothing
    was compared: REFERENCE cannot be run, or gives the same value whatever it is fed.

    Both run on the same inputs, with TensorFlow's own graph optimizer switched off. If an output is
    a Softmax, its input is compared too. In --json, an infinite figure (there is no difference
    at all) is null, and "verified" is false if nothing was compared.

    Args:
        reference: the model that is right; whatever `open_model` takes.
        result: the model to judge.
        how: on which inputs, and against which bar.
        min_sqnr: Instead, the smallest signal-to-noise ratio allowed [default for a quantized
            RESULT: 15].

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

    Exits with 5 if a record's checksum is wrong, or a shard is cut short, changed, missing or not
    listed, or if there is no record at all. Without an index, a shard that was cut between two
    records looks complete, which the result says.

    Args:
        folder: where the shards lie.
        name: Name of the records, if DIR holds records of several names.
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
    """Write the recommended tf.data function for data, to stdout or a file.

    DIR is a folder of TFRecords (deploykit records), of CSV files or of images, or an .npz file.
    The code is short, imports only TensorFlow (and NumPy for .npz), and builds the very dataset
    that `deploykit benchmark --input tfdata` measures with the same options on this machine.
    `deploykit benchmark MODEL --data DIR --pipeline FILE:dataset` measures the file, here without
    its .py.

    Args:
        data: a folder of TFRecords (`deploykit.convert_records`), of CSV files or of images, or an
            `.npz` file.
        model: Make batches that fit the inputs of this model [default: a tensor for each feature of
            the data].
        piping: how files are read: `preprocess`, `shuffle`, `cache`, `buckets` and
            `private_threads`.
        batch: Records in a batch [default: what the model demands, or 32].
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
