# Written by `make docs` from the code: change that instead.

from collections.abc import Collection
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
from deploykit.api.comparison import VerifyOptions as VerifyOptions
from deploykit.api.inspection import Differences as Differences
from deploykit.api.inspection import Inspection as Inspection
from deploykit.api.installation import Diagnosis as Diagnosis
from deploykit.api.installation import TransformList as TransformList
from deploykit.api.label import ImageLabels as ImageLabels
from deploykit.api.records import Compression
from deploykit.api.records import OnError
from deploykit.api.records import RecordOptions as RecordOptions
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
from deploykit.benchmarking.process_variables import Given
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
from deploykit.data.input_speed.input_result import InputResult as InputResult
from deploykit.data.pipeline import InputPipelineOptions as InputPipelineOptions
from deploykit.evaluation.result import Accuracy as Accuracy
from deploykit.exporting.deployment import Manifests as Manifests
from deploykit.exporting.export import ExportOptions as ExportOptions
from deploykit.exporting.export import Exported as Exported
from deploykit.exporting.manifests import ManifestKind
from deploykit.gating.limits import GateLimits as GateLimits
from deploykit.gating.result import GateResult as GateResult
from deploykit.importers.graph_files import load_graph as load_graph
from deploykit.importers.graph_files import save_graph as save_graph
from deploykit.importers.model_source import ModelSource as ModelSource
from deploykit.importers.open_model import ModelLike as ModelLike
from deploykit.importers.open_model import ModelsLike as ModelsLike
from deploykit.importers.open_model import OpenedModel as OpenedModel
from deploykit.importers.open_model import open_model as open_model
from deploykit.inspection.placement import EnginePlacement as EnginePlacement
from deploykit.inspection.placement import Placement as Placement
from deploykit.pipelines.rewrite import Rewriting as Rewriting
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
from deploykit.storage.csv_files import HeaderRule
from deploykit.transforms.common.errors import BugError as BugError
from deploykit.transforms.common.errors import CrashError as CrashError
from deploykit.transforms.common.errors import Error as Error
from deploykit.transforms.common.errors import FileError as FileError
from deploykit.transforms.common.errors import GraphError as GraphError
from deploykit.transforms.common.errors import InconclusiveError as InconclusiveError
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
from deploykit.verification.samples import PathLike as PathLike
from deploykit.verification.samples import PreprocessLike as PreprocessLike
from deploykit.verification.samples import ResultLike as ResultLike
from deploykit.verification.verify import Verification as Verification
from numpy.typing import ArrayLike
from pathlib import Path
from typing import Any
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
    header: HeaderRule = 'auto',
    columns: Mapping[str, str] | None = None,
    metric: str = 'top1',
    labels: LabelsLike | None = None,
    group_by: str | None = None,
    show_errors: int = 12,
    allow_ops: Sequence[str] = (),
    inputs: Sequence[str] = (),
    outputs: Sequence[str] = (),
    tags: Sequence[str] = (),
    signature: str | None = None,
    pins: Mapping[str, str] = ...,
    graph: str | Path | None = None,
) -> Accuracy:
    """Measure accuracy on labelled samples.

    Every MODEL runs on the same samples, in the engine (TensorFlow or OpenVINO) that it was written
    for. Accuracies have a 95 % confidence interval. The last MODEL is compared with the first one,
    sample by sample. The comparison shows the change of the metric with its interval, the top-1
    agreement, and the noise of the outputs. It lists the samples on which the models disagree most.
    For a single MODEL, the most confident wrong predictions are listed.

    Labels are class numbers, one-hot rows, or names. Names of image folders are looked up in
    `labels` or in the model metadata file. Without either, the sorted folders are numbered from 0
    if their number equals the model's number of classes. Without labels, two or more models are
    only compared with each other.

    --json includes thumbnails of the listed samples if they are images.

    Args:
        models: any model that `open_model` accepts, a list of models, or a mapping from names to
            models.
        data: Samples with labels: a .npz file of arrays by input name and labels, a folder of
            TFRecords or CSV files, a folder of images with one subfolder per class, or DIR/NAME if
            DIR contains records of several names.
        preprocess: Preprocessing of file features into model inputs, such as image size and value
            range: a JSON file, JSON text, or only the range (0..1, -1..1, 0..255, photo=0..1)
            [default: from the model metadata file X.pb.json, or from the model itself].
        header: Whether the first row of CSV files is a header; auto: if none of its cells is a
            number and none is empty. The columns of a file without one are named 0, 1 and so on.
        columns: Column of a table for an input that has another name, or several columns of numbers
            for a vector; may be repeated [default: the column of the input's name, or the only one
            that fits; for one input of numbers, all columns of a CSV file, without the last one if
            it is one more].
        metric: top1, top5, mae (mean absolute error), or your own function. It gets the outputs by
            name and the labels.
        labels: Class names, one per line, in the order of the model's scores. They map class names
            in the data, such as image folders, to class numbers [default: from the model metadata
            file].
        group_by: Also report each group of samples. NAME is an array, column or feature with one
            string or integer per sample, or `folder` for images. [default: `group`, or image
            folders that are not the classes]
        show_errors: Number of samples to list: those on which the models disagree most, or the most
            confident wrong predictions of a single model.
        allow_ops: Allow this op, which acts on files, the network or processes; may be repeated.

    All samples must fit in memory. FileError, GraphError: a model or the data cannot be read or do
    not match, an image folder is not a class in `labels`, there are no labels, or nothing can be
    compared. RefusedError: an op acts on files or processes. LimitError: TensorFlow crashed or
    hung.

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
    env: Given = ...,
    caller_thread: Sequence[bool] | bool = (),
    keep_memory: Sequence[bool] | bool = (),
    concurrency: Sequence[int] | int = (),
    executor: Sequence[Literal['default', 'caller', 'single']] | Literal['default', 'caller', 'single'] = (),
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
    header: HeaderRule = 'auto',
    columns: Mapping[str, str] = ...,
    on_error: Literal['stop', 'skip'] = 'stop',
    shuffle: bool = False,
    cache: str | None = None,
    buckets: Sequence[int] = (),
    private_threads: int | None = None,
    service_address: str | None = None,
    pipeline: str | InputFunction | None = None,
    timing: BenchmarkOptions = ...,
    seconds: float = 10,
    runs: int | None = None,
    rounds: int | None = None,
    profile: bool = False,
    inputs: Sequence[str] = (),
    outputs: Sequence[str] = (),
    tags: Sequence[str] = (),
    signature: str | None = None,
    pins: Mapping[str, str] = ...,
    graph: str | Path | None = None,
) -> BenchmarkResult | InputResult:
    """Measure how fast models run, with one or several settings.

    Every model runs with every combination of settings. Several sessions of each combination are
    interleaved in random order, so that other load on the machine affects all of them equally. Each
    session is warmed up until its latencies are stable. The run stops early once every comparison
    is conclusive.

    Each model is compared with the first one that has the same batch. The verdict is "faster" (wall
    time), "slower" (wall time or CPU time), "no difference" (below the stated percentage) or
    "inconclusive" (high variance).

    With `data` DIR, deploykit reads the files while the model runs, in three ways: Python, queues
    and tf.data. The result shows the read rate and the model's rate in samples per second, and
    which of the two is the bottleneck.

    After Ctrl-C, the result so far is written and shown.

    Args:
        models: any model that `open_model` accepts, a list of models, or a mapping from names to
            models.
        settings: the run settings. A `RunConfigGrid` stands for every combination of its values; a
            mapping gives the settings of each model.
        feeding: the model inputs: data or synthetic values. Ops that act on files or processes are
            refused unless listed in `allow_ops`.
        piping: the input pipeline that reads files.
        timing: the duration or the number of runs.
        profile: Also trace some runs. Shows time, memory and FLOPs by op and by node.

    Latencies are in milliseconds. After Ctrl-C, the function returns the measurements so far.
    FileError, GraphError: a model or the data cannot be read or do not match, options contradict
    each other, or a GPU, an engine or one of its ops is not available.
    RefusedError: an op acts on files or processes. LimitError: TensorFlow crashed or hung.
    VerificationError: the outputs of an engine differ from TensorFlow's.

    Commands:
        deploykit benchmark fashion.pb optimized.pb --batch 1,32 --seconds 5
        deploykit benchmark fashion.pb --runs 50 --profile --top 5

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
    header: HeaderRule = 'auto',
    columns: Mapping[str, str] | None = None,
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

    Runs the model on the data and writes a JSON file that can be edited. It contains the smallest
    and largest value of each float tensor, and the mean and smallest value of each channel.
    Quantization maps these ranges to int8.

    Args:
        model: any model that `open_model` accepts. A GraphDef file is used unchanged; any other
            model is frozen first.
        data: At least 64 representative samples: a .npz file of arrays by input name, a folder of
            TFRecords, images or CSV files, or DIR/NAME if DIR contains records of several names.
        preprocess: Preprocessing of file features into model inputs, such as image size and value
            range: a JSON file, JSON text, or only the range (0..1, -1..1, 0..255, photo=0..1)
            [default: from the model metadata file X.pb.json, or from the model itself].
        header: Whether the first row of CSV files is a header; auto: if none of its cells is a
            number and none is empty. The columns of a file without one are named 0, 1 and so on.
        columns: Column of a table for an input that has another name, or several columns of numbers
            for a vector; may be repeated [default: the column of the input's name, or the only one
            that fits; for one input of numbers, all columns of a CSV file, without the last one if
            it is one more].
        method: minmax: the full range of values; mse: the range with the smallest mean squared int8
            error; it runs the samples twice.
        batch: Samples in a batch [default: the model's fixed batch, or 8].
        allow_ops: Allow this op, which acts on files, the network or processes; may be repeated.
        output: the `.json` file for the ranges, which `transform` and `sensitivity` read.
        force: Replace an existing output file.

    FileError, GraphError: the samples do not match the inputs, there are none, or an activation
    contains NaN or Inf.

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

    Exits with 2 if the model is invalid. Examples: a node does not match its op, an output needs an
    op that TensorFlow does not know, or a function calls itself endlessly. A model is also invalid
    if it requests far more memory than its file size, or if TensorFlow's importer rejects it.

    Exits with 3 if the model is valid but contains ops that act on files, the network or processes.
    Ops that store the variables of a SavedModel or a checkpoint are allowed. All findings are
    always printed.

    deploykit checks the bytes of the file before it decodes them, and runs TensorFlow in a separate
    process.

    Args:
        model: any model that `open_model` accepts; a `ModelSource` may name outputs.
        allow_ops: Accept this op, which acts on files, the network or processes; may be repeated.

    An invalid model raises no error: the result has `problems`, and `error` is the error to raise.
    FileError: a file of the model or of its variables is missing or unreadable. GraphError: the
    model lacks the named input, output, tags or signature. RefusedError: an asset file is outside
    the model's folder.

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

    The ratio is the median latency of A divided by that of B. Above 1, B is faster. With
    `baseline`, it is the median latency of the baseline divided by that of A: above 1, A is faster.
    Measurements with the same name and settings are paired. If the names differ, each file must
    have a single measurement with these settings, or a single measurement in all.

    The verdict is shown below the table. "slower": B takes more CPU time per run, or over 10 % more
    wall time. "faster": B is over 10 % faster in wall time. The margin is 10 % because the speed of
    a machine varies that much from hour to hour. Models that are interleaved in one `deploykit
    benchmark` need no margin.

    `fail_below` 0.95 fails only if the whole confidence interval is below 0.95. A ratio of 0.9 with
    the interval 0.8 to 1.0 passes; with 0.86 to 0.94 it fails. With `baseline`, a result that fails
    is not added.

    Args:
        a: a result of `deploykit.benchmark`, or the JSON file that its command writes.
        b: a second result or file, as for `a`.
        baseline: Compare A with the earlier results of this machine in this file, and add A to it.
            The first result creates the file.
        confidence: Confidence of the intervals, from 0.5 to 0.9999.
        fail_below: Exit with 5 if the ratio is significantly below this, or if nothing was compared
            [default: exit with 0]. The first result of a new `baseline` passes.

    `check(0.95)` of the returned value raises VerificationError if the ratio is significantly below
    0.95, or if nothing was compared. The first result of a new baseline passes.
    FileError: a file cannot be read or written. GraphError: a file is not a benchmark result, or no
    measurements can be paired.

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
    header: HeaderRule = 'auto',
    labels: str | os.PathLike[str] | None = None,
    raw: bool = False,
    shard_size: float = 100,
    compression: Compression = 'none',
    processes: int | None = None,
    on_error: OnError = 'stop',
    force: bool = False,
) -> ConvertedSets:
    """Write data as TFRecord shards.

    SOURCE is a folder of images, numeric CSV files, Parquet or JSON Lines files, tab-separated text
    files, a .npz file, IDX files (MNIST), or CIFAR files. Columns of Parquet and JSON Lines become
    features. The unpacked CIFAR folder becomes records named train, validation
    (data_batch_5 of CIFAR-10) and test. Pass one of them to other commands as --data DIR/train. The
    shards are byte-identical for any number of processes. NAME.index.json next to them lists the
    features, the number of records, and the SHA-256 of each shard. Records keep the order of the
    source. Images are sorted by class, so shuffle them for training.

    After an interruption, the same command resumes. Finished shards are kept.

    Args:
        sources: a folder of images, or one or several files: numeric CSV, Parquet, JSON Lines,
            tab-separated text, `.npz`, IDX (MNIST) or CIFAR files. The whole CIFAR folder becomes
            `train`, `validation` and `test`.
        folder: the folder for the shards.
        how: the kind of the sources, and the format of the shards.
        force: Replace existing records of this name.

    FileError: a file cannot be read or written, or the records exist. GraphError: the kind of the
    data is unknown, an item is invalid, or there are no items.

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
    """Show the nodes that differ between two models.

    Exits with 0 if the graphs are equal, and with 5 if they differ. Prints a summary of nodes, ops,
    weights, inputs and outputs, then each difference. Lines with - are nodes only in FIRST, + only
    in SECOND, and ~ nodes whose op, inputs, device or attributes differ.

    The order of nodes, attributes whose names start with an underscore, and versions are not
    compared. `deploykit verify` compares the outputs of the models.

    Args:
        first: any model that `open_model` accepts.
        second: the model to compare with it.

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

    Shows the machine with its resource limits, package versions, and the GPU with its driver and
    libraries. Also shows TensorFlow's build and configuration, and the environment variables that
    affect it. If TensorFlow sees no GPU, the last line states the reason and the fix.

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
    header: HeaderRule = 'auto',
    columns: Mapping[str, str] = ...,
    labels: str | os.PathLike[str] | Sequence[str] | None = None,
    max_pixels: int = 50000000,
    manifests: Manifests = ...,
    engine: Literal['auto', 'tensorflow', 'openvino'] | None = None,
    allow_ops: Sequence[str] = (),
    sample_warmup: bool = True,
    inputs: Sequence[str] = (),
    outputs: Sequence[str] = (),
    tags: Sequence[str] = (),
    signature: str | None = None,
    pins: Mapping[str, str] = ...,
    graph: str | Path | None = None,
) -> Exported:
    """Write a model as a version that TensorFlow Serving loads.

    Writes the folder BASE_DIR/NAME/N/ atomically, with a new version number N. Existing versions
    are never replaced. The signatures of a SavedModel keep their names, inputs and outputs. With
    `signature`, only that one is exported, as the default. Any other model gets the signature
    serving_default, with the names of inputs and outputs in the graph. `signature_name`,
    `input_aliases` and `output_aliases` rename the signature, its inputs and its outputs for
    existing clients. With `preprocess`, serving_default takes encoded image files (bytes), the
    signature pixels takes decoded images (uint8), and the signature tensors takes the model's own
    inputs.

    Args:
        model: any model that `open_model` accepts.
        base_dir: the folder that contains the models.
        how: the name, version, signatures and extra files of the exported version.

    FileError: the version exists, or cannot be written. GraphError: the model cannot be read, or
    its tensors do not match the method. RefusedError: an op acts on files or processes.

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
    header: HeaderRule = 'auto',
    columns: Mapping[str, str] = ...,
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

    deploykit loads and runs the new file once, and compares its outputs with those of the original
    graph. Nothing is written if they differ, or if they could not be compared.

    Args:
        model: any model that `open_model` accepts.
        how: the inputs and the tolerance of the comparison with the model.
        preprocess: Preprocessing of the model's data, in the same format as for calibrate and
            benchmark. It is stored in the model metadata file, where other commands find it.
        labels: File with the class names, one per line. They are stored in the model metadata file,
            where deploykit label finds them.
        output: also write the graph to this `.pb` file.
        force: Replace an existing output file.

    FileError: a file is missing, unreadable or cannot be written. GraphError: the model is invalid,
    or lacks the tags or signature. RefusedError: the model contains code, or an op acts on files or
    processes. VerificationError: the outputs of the written file differ, or nothing could be
    compared.

    Commands:
        deploykit freeze models/fashion/fashion.keras -o fashion.pb
        deploykit freeze models/fashion/tf1/model.ckpt -o checkpoint.pb

    Example:
        >>> graph = deploykit.freeze("fashion.keras", output="frozen.pb")
        >>> graph.inputs, graph.outputs
        (('images',), ('probabilities',))
    """

def gate(
    baseline: ModelLike,
    candidate: ModelLike,
    data: DataLike,
    *,
    preprocess: PreprocessLike | None = None,
    header: HeaderRule = 'auto',
    columns: Mapping[str, str] | None = None,
    labels: LabelsLike | None = None,
    metric: Literal['top1', 'top5', 'mae'] = 'top1',
    limits: GateLimits = ...,
    max_accuracy_drop: float | None = 0.01,
    min_agreement: float | None = None,
    max_latency_increase: float | None = 0.05,
    max_p99_increase: float | None = None,
    max_size_increase: float | None = 0.1,
    max_memory_increase: float | None = 0.1,
    max_startup_increase: float | None = None,
    allow_signature_change: bool = False,
    batch: int | None = None,
    budget: float = 120.0,
    allow_ops: Sequence[str] = (),
    inputs: Sequence[str] = (),
    outputs: Sequence[str] = (),
    tags: Sequence[str] = (),
    signature: str | None = None,
    pins: Mapping[str, str] = ...,
    graph: str | Path | None = None,
) -> GateResult:
    """Pass or fail a candidate model against its baseline, for CI.

    Compares signatures, size, accuracy (without labels: predictions), latency, throughput, memory
    and start-up. Speed and memory are measured in interleaved runs, so that other load on the
    machine affects both models equally. A check passes if its whole confidence interval is within
    its limit, and fails if the whole interval is beyond. Otherwise the gate keeps measuring for
    up to `budget` seconds.

    Exits with 0 if every check passes, with 5 if one fails, and with 7 if one is inconclusive.
    Percentages are written as 5% or 0.05. Both models may be folders of `deploykit ship`.

    Args:
        baseline: any model that `open_model` accepts, such as the released one.
        candidate: the model to compare with it.
        data: Samples, with labels for accuracy: a .npz file of arrays by input name and labels, a
            folder of TFRecords or CSV files, a folder of images with one subfolder per class, or
            DIR/NAME if DIR contains records of several names.
        preprocess: Preprocessing of file features into model inputs, such as image size and value
            range: a JSON file, JSON text, or only the range (0..1, -1..1, 0..255, photo=0..1)
            [default: from the model metadata file X.pb.json, or from the model itself].
        header: Whether the first row of CSV files is a header; auto: if none of its cells is a
            number and none is empty. The columns of a file without one are named 0, 1 and so on.
        columns: Column of a table for an input that has another name, or several columns of numbers
            for a vector; may be repeated [default: the column of the input's name, or the only one
            that fits; for one input of numbers, all columns of a CSV file, without the last one if
            it is one more].
        labels: Class names, one per line, in the order of the model's scores. They map class names
            in the data, such as image folders, to class numbers [default: from the model metadata
            file].
        metric: top1, top5, or mae (mean absolute error).
        limits: how much worse the candidate may be.
        batch: Samples per request of the speed measurement [default: the batch that the model
            requires, or 1].
        budget: Longest time in seconds to measure speed, memory and start-up.
        allow_ops: Allow this op, which acts on files, the network or processes; may be repeated.

    `check()` of the returned value raises VerificationError if a check failed, and
    InconclusiveError if one is inconclusive. FileError, GraphError: a model or the data cannot be
    read or do not match, or every limit is off. RefusedError: an op acts on files or processes.
    LimitError: TensorFlow crashed or hung.

    Commands:
        deploykit gate released.pb candidate.pb --data models/fashion/test_1000.npz
        deploykit gate old.ship new.ship --data test.npz --max-latency-increase 5%

    Example:
        >>> found = deploykit.gate("fashion.pb", "fashion.pb", "test_1000.npz", budget=2)
        >>> found.checks[0].name, found.checks[0].verdict
        ('signatures', 'pass')
    """

def infer(
    model: ModelLike,
    data: Any,
    out: str | os.PathLike[str] | None = None,
    how: InferOptions = ...,
    *,
    scheduler: str = 'local',
    address: str | None = None,
    processes: int | None = None,
    batch: int | None = None,
    preprocess: PreprocessLike | None = None,
    header: HeaderRule = 'auto',
    top: int | None = None,
    labels: str | os.PathLike[str] | Sequence[str] | None = None,
    format: Literal['parquet', 'csv', 'jsonl', 'tfrecord', 'npz'] = 'parquet',
    keep_columns: Sequence[str] = (),
    columns: Mapping[str, str] = ...,
    name: str | None = None,
    vocabulary: str | os.PathLike[str] | None = None,
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
) -> Inferred | Any:
    """Run batch inference over a dataset and write the predictions.

    DATA is a table: a CSV, Parquet or JSON Lines file, a folder or a pattern of them, also below
    s3:// or gs://. Its columns are the inputs, by name. Or DATA is TFRecords: a file, or a folder
    (DIR/NAME if DIR contains records of several names), a folder of images, or a .npz file of
    arrays by input name. deploykit splits DATA into parts, and TFRecords by shard. Each worker
    takes the next part and writes its predictions to the folder OUT atomically, as one file. Each
    row states the file and the row of DATA that it belongs to. Work of a lost worker is retried. At
    the end, OUT/NAME.index.json lists all parts with their SHA-256, and the skipped rows.

    After Ctrl-C or a crash, the same command resumes with the missing parts. On a cluster,
    deploykit must be installed on every machine, and MODEL, OUT and DATA must have the same paths
    on each.

    Args:
        model: any model that `open_model` accepts. A folder written by `ship` also provides
            preprocessing, labels and settings.
        data: a CSV, Parquet or JSON Lines file, a folder or a pattern of them, a folder of
            TFRecords or of images, or a `.npz` file of arrays by input name. In
            Python also a pyarrow Table, a pandas or polars DataFrame, or a Ray Dataset; the result
            is then a table of the same kind.
        out: the folder for the results; for a table in memory, there is none. On a cluster, it and
            the data have the same paths on all machines.
        how: the workers, the preprocessing and the output format.

    FileError: a file cannot be read or written, or the folder contains other results. GraphError:
    the data does not match the model, or the named row is invalid. RefusedError: an op acts on
    files or processes. LimitError: a part lost its worker too often.

    Commands:
        deploykit infer sentiment.keras reviews.csv answers --keep-columns id
        deploykit infer fashion.pb models/fashion/test_1000.npz answers --top 1
        deploykit infer shipped photos answers --top 5 --format csv
        deploykit infer int8.pb /mnt/records /mnt/answers --scheduler ray
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
    that can be folded. FLOPs (a multiply-add counts as 2) and memory in bytes are estimated at
    batch 1, for nodes whose shapes are known without running the model.

    A GraphDef file is shown as it is. Any other model is frozen first, so it has no variables.

    Args:
        model: any model that `open_model` accepts.
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

    With an index, only the first record is read. Without one, records are counted, which reads the
    lengths of all records, or all of a compressed file: for large data, pass one of its files.

    Args:
        folder: the folder that contains the shards, or one TFRecord file, with or without an index.
        name: Name of the records, if DIR contains records of several names.

    FileError: there are no records, or they cannot be read. GraphError: the format of the records
    is unknown, or their index is damaged. VerificationError: the first record is damaged, or
    without an index the length of any record.

    Commands:
        deploykit records inspect records
        deploykit records inspect train.tfrecord
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

    IMAGE is a JPEG, PNG, GIF, BMP or WebP file. It is resized to the model's input size
    (bilinear, as in label_image), and each pixel x becomes (x - mean) / std. By default, mean
    is 0 and std is 255, as in label_image. If the model rescales its inputs itself, pixels are
    scaled to the range that the model expects, and a warning states both ranges. With
    `preprocess`, the image is prepared as in calibrate and benchmark. --json prints the
    preprocessing in the format of a `preprocess` file. The model metadata file X.pb.json may
    contain preprocessing and labels.

    Args:
        image: the path of a JPEG, PNG, GIF, BMP or WebP file, or an array of integers from 0 to
            255, with the shape [height, width] or [height, width, 1, 3 or 4].
        model: Model that classifies the image; required.
        labels: File with the class names, one per line [default: from the model metadata file].
        how: the preprocessing of the image, the tensors, and the number of classes.

    FileError: a file is missing or cannot be read. GraphError: the image cannot be decoded, or the
    model has no image input, no scores or no labels. RefusedError: an op acts on files or
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

    With NAME, also shows its parameters. NAME may be your own transform, written as
    package.module:function.

    Args:
        name: the name of a transform, or `package.module:function` for your own. Default: all
            transforms, including aliases.

    PipelineError: the transform does not exist.

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
    header: HeaderRule = 'auto',
    columns: Mapping[str, str] = ...,
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
        address: a gRPC address, `host:port` or `unix:path`; with `protocol="v2"` also an HTTP URL.
        model: the name of the served model.
        data: Samples to send one after another: a .npz file of arrays by input name, a folder of
            TFRecords, images or CSV files, or DIR/NAME if DIR contains records of several names.
        how: the model version, the kind of load and its duration.
        connection: the protocol, TLS and timeout of the connection.

    Error: several kinds of load are given. CallError: the server, model or version does not exist,
    or the model rejects the first request. FileError, GraphError: the data does not match.

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
    header: HeaderRule = 'auto',
    columns: Mapping[str, str] = ...,
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
    of the original model, or if they could not be compared.

    Args:
        model: any model that `open_model` accepts.
        how: the inputs and the tolerance of the comparison.
        output: also write the graph to this `.pb` file.
        force: Replace an existing output file.
        verify: whether to compare the result with the model even if no file is written. A written
            file is always loaded, run and compared.

    GraphError: the model is invalid, or the data does not match its inputs. VerificationError: the
    outputs differ, or nothing could be compared. RefusedError: an op acts on files or processes.

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
    header: HeaderRule = 'auto',
    columns: Mapping[str, str] | None = None,
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

    Runs the model and shows the graph that TensorFlow executed after folding and fusing nodes, with
    the requested and the actual device of each node. It also lists copies of tensors between
    devices with their bytes per run, and nodes that silently ran on another device.

    In OpenVINO, everything runs on the CPU. The result shows OpenVINO's ops with their precisions
    (u8 and i8 are 8-bit integers). It counts the int8 layers, and the ops that only convert types.

    To try other devices, use the transform set_device of deploykit transform.

    Args:
        model: any model that `open_model` accepts.
        feeding: the model inputs: data or synthetic values.
        header: Whether the first row of CSV files is a header; auto: if none of its cells is a
            number and none is empty. The columns of a file without one are named 0, 1 and so on.
        columns: Column of a table for an input that has another name, or several columns of numbers
            for a vector; may be repeated [default: the column of the input's name, or the only one
            that fits; for one input of numbers, all columns of a CSV file, without the last one if
            it is one more].
        batch: Samples in a batch [default: the model's fixed batch, or 1].
        device: Devices that TensorFlow may use: cpu, gpu (the first), gpu:N, or all (every GPU).
        cpu_devices: Present the CPU as this many devices, up to 64, to try a placement without a
            GPU.
        soft_placement: Fail if a node cannot run on its requested device.
        engine: Execution engine. openvino runs everything on the CPU and shows its own graph
            [default: the engine that the model was written for, else tensorflow].

    Copy sizes are in bytes per run.

    FileError, GraphError: the model or the data cannot be read, an input has no known shape,
    TensorFlow cannot run the model, or, without `soft_placement`, a requested device is not
    available. RefusedError: an op acts on files or processes. LimitError: TensorFlow crashed or
    hung.

    Commands:
        deploykit placement models/fashion/fashion.keras
        deploykit placement model.pb --device gpu --no-soft-placement

    Example:
        >>> found = deploykit.placement("fashion.keras")
        >>> found.fallbacks, found.copied_bytes
        ((), 0)
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
    itself (deploykit export `preprocess`), the image file is sent unchanged. Otherwise the image is
    decoded and resized before sending, as in `deploykit calibrate` and `benchmark`.

    Args:
        address: a gRPC address, `host:port` or `unix:path`; with `protocol="v2"` also an HTTP URL.
        model: the name of the served model.
        inputs: a mapping from input names to values, or a list of `[NAME=]VALUE` as on the command
            line. A value is an array or nested list, a string for a string input, or the path of a
            `.npy` file or of an image. The batch axis may be omitted. Images are decoded and
            resized as in `calibrate` and `benchmark`. For an input of strings or encoded images,
            the bytes of the file at a `pathlib.Path` are sent.
        how: the model version, the signature, and the outputs to return.
        connection: the protocol, TLS and timeout of the connection.

    CallError: the server, model or version does not exist, or the model rejects the inputs.
    FileError, GraphError: an input is missing or unknown, or a value does not match its input.

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
    group_by: str | None = None,
    allow_low_accuracy: bool = False,
    allow_float: bool = False,
    minimum_size: int = 1024,
    skip: Sequence[str] = (),
    comparison: VerifyOptions = ...,
    data: DataLike | None = None,
    preprocess: PreprocessLike | None = None,
    header: HeaderRule = 'auto',
    columns: Mapping[str, str] = ...,
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
    kept in float32. Without `calibration`, only the weights are stored in int8. The file shrinks
    to about a quarter, and the speed stays the same.

    A quantization-aware model contains its int8 scales, in FakeQuant ops as TF-MOT writes them. Its
    layers run in int8 with these scales, without `calibration`.

    int8 is kept unless it is significantly slower than float32 or too inaccurate. If int8 is not
    kept, or there is nothing to quantize, the command writes nothing and exits with status 5.

    The result is compared with the original before it is written. After Ctrl-C, the same command
    resumes the search.

    Args:
        model: any model that `open_model` accepts.
        how: the mode, the accuracy limits and the target of quantization.
        comparison: the inputs on which the result is compared with the original, without
            calibration data.
        calibration: At least 64 representative samples: a .npz file of arrays by input name, a
            folder of TFRecords, images or CSV files, or DIR/NAME if DIR contains records of several
            names. Every fourth sample is held out to check the result, or whole groups of related
            samples, such as crops of one picture.
        evaluation: Samples with labels, to measure `metric`.
        output: also write the graph to this `.pb` file. With calibration, the state of the search
            is stored next to it, and the same call resumes after an interruption.
        force: Replace an existing output file.

    NotQuantizedError: float32 is the right result, because int8 is significantly slower or too
    inaccurate, or nothing can be quantized. With `allow_float`, the optimized float32 graph is
    returned instead. VerificationError: the outputs of the float32 model are not usable.
    GraphError: the samples do not match the inputs, or lead to NaN or Inf; an option has no effect;
    or an engine is not available or its outputs differ from TensorFlow's. RefusedError: an op acts
    on files or processes.

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

    DIR is a folder that deploykit ship wrote. RESULT.json is the output of --json or -o of
    benchmark, tune, quantize, load-test, placement, accuracy, verify, optimize, check or
    export. Several results are shown one after another.

    The page is one self-contained file of at most 2 MB. It follows the reader's light or dark theme
    and can be printed. Long tables are truncated, with a reference to the full data in the JSON
    file.

    Args:
        results: a folder that `ship` wrote, a JSON file that a command wrote, a value that a
            function such as `benchmark`, `tune`, `quantize`, `load_test` or `placement` returned,
            the JSON document of such a value, or a list of these.
        output: File to write [default: DIR/report.html, or RESULT.html next to RESULT.json].
        force: Replace an existing output file.

    FileError: a file cannot be read, or the page cannot be written. GraphError: a result has an
    unsupported type or format.

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
    header: HeaderRule = 'auto',
    columns: Mapping[str, str] | None = None,
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

    Optimizes and calibrates the model like quantize. Then runs it with one int8 layer at a time and
    measures the signal-to-noise ratio of the outputs in dB. The lower the ratio, the noisier the
    layer. Layers that cannot run in int8 are listed with the reason.

    Args:
        model: any model that `open_model` accepts.
        calibration: Samples: a .npz file of arrays by input name, a folder of TFRecords, images or
            CSV files, or DIR/NAME if DIR contains records of several names. Every fourth sample is
            held out to measure the noise, or whole groups of related samples.
        preprocess: Preprocessing of file features into model inputs, such as image size and value
            range: a JSON file, JSON text, or only the range (0..1, -1..1, 0..255, photo=0..1)
            [default: from the model metadata file X.pb.json, or from the model itself].
        header: Whether the first row of CSV files is a header; auto: if none of its cells is a
            number and none is empty. The columns of a file without one are named 0, 1 and so on.
        columns: Column of a table for an input that has another name, or several columns of numbers
            for a vector; may be repeated [default: the column of the input's name, or the only one
            that fits; for one input of numbers, all columns of a CSV file, without the last one if
            it is one more].
        ranges: Ranges of the optimized model from deploykit calibrate [default: measured on the
            samples].
        isa: Instruction set of the target CPU; auto: that of this machine.
        allow_ops: Allow this op, which acts on files, the network or processes; may be repeated.

    FileError, GraphError: the samples do not match the inputs, or lead to NaN or Inf.
    MismatchError: the ranges belong to another model.

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
    memory_limit: int | None = None,
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

    BASE_DIR contains the versions of one model (folders with numbers as names), or several such
    models. It may also be a folder written by deploykit ship. Then its model is served under its
    name, with the settings from deploykit tune. Flags and `tuned` override these settings.

    The flags are those of TensorFlow Serving and some more, written as --flag=value, --flag value,
    --switch or --noswitch. A TensorFlow Serving flag that has no effect here logs a warning.

    With several workers, each loads new versions by itself. Until all have done so, some still
    serve the old version. Each worker counts its own requests for Prometheus. Reload over gRPC is
    not available. Change the file of `model_config_file` instead, and set
    `model_config_file_poll_wait_seconds`.

    After SIGTERM, the health check reports NOT_SERVING. The server still accepts requests for
    `lame_duck_seconds`, or up to twice as long if more arrive. Then it rejects new requests
    (UNAVAILABLE, 503), and stops once all running ones have finished. Ctrl-C skips the first phase;
    a second signal stops the server at once.

    Args:
        base_dir: a folder with the versions of one model (folders with numbers as names), with
            several such models, or written by `deploykit ship`. Default: `model_base_path` or
            `model_config_file`.
        flags: the flags of TensorFlow Serving, and some more.
        tuned: Use the threads, concurrency, batching and environment from this deploykit tune file.
            Flags and environment variables that are set override them.

    Error: flags contradict each other. FileError: a file or folder cannot be read, or a port is in
    use. GraphError: no model was found, or the list of models is invalid. The server retries to
    load a version that fails.

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
    header: HeaderRule = 'auto',
    columns: Mapping[str, str] = ...,
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
    accuracy, placement, tune, benchmark, export, and a request to a served instance. The output
    folder then contains model.pb, report.html, report.json, the settings from deploykit tune, and
    NAME/1 for TensorFlow Serving. `deploykit serve DIR` serves the model with these settings.

    The result of each stage is stored in the folder. After Ctrl-C the same command resumes; a later
    run only repeats stages whose inputs changed. A stage that is not worthwhile on this machine is
    skipped, and the report gives the reason.

    Options can also be set in deploykit.toml in the current folder, in its table [ship]. Options on
    the command line override them.

    Args:
        model: any model that `open_model` accepts.
        output: Folder to write [default: NAME.ship]. A later run in the same folder only repeats
            stages whose inputs changed.
        how: data, goal and budget of the shipment.
        from_stage: Repeat this stage and all later ones: check, optimize, calibrate, quantize,
            verify, accuracy, placement, tune, benchmark, export or serve.
        dry_run: Show the stages and their estimated duration without running them.

    `deploykit.serve(output)` serves the result. FileError, GraphError: the model or the data
    cannot be read or do not fit each other, or the folder contains something else.
    VerificationError: the outputs differ from the model's. RefusedError: the model accesses files
    or processes.

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
    Serving has no such list. Over gRPC, the health service is queried. TensorFlow Serving only has
    it if started with --enable_grpc_healthcheck_service. With `protocol` v2, shows whether the
    server is live and ready. Exits with 5 if the server is not serving, or a model has no available
    version.

    Args:
        address: a gRPC address, `host:port` or `unix:path`, or a REST URL, `http://host:port`.
        model: the name of the served model. Default: over REST, all models (deploykit servers
            only); over gRPC, the health service; with `protocol="v2"`, whether the server is live
            and ready.
        version: Version of the model [default: the newest].
        version_label: Choose the version by its label, such as stable.
        connection: the protocol, TLS and timeout of the connection.

    CallError: the server, model or version does not exist.

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
    header: HeaderRule = 'auto',
    columns: Mapping[str, str] = ...,
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
    much, writes no out_graph, and exits with 5. With `dump`, DIR contains the graphs before that
    step.

    Args:
        model: Graph to read.
        transforms: Transforms to run in order, such as 'fold_constants(ignore_errors=true)
            fold_batch_norms'; package.module:function is your own transform.
        how: the inputs and the tolerance of the comparison, with `verify`.
        output: Graph to write.
        force: Replace an existing output file.
        verify: Run the graph before and after. If the outputs differ, write nothing and name the
            step that caused it.
        as_text: Write the graph as text.
        dump: Write the graph after each step to this folder: DIR/01-NAME.pb and so on.

    PipelineError: the string does not parse. GraphError: a transform cannot be applied.
    RefusedError: the model acts on files or processes.
    VerificationError: the outputs differ, and the first step beyond the tolerance is named; or
    nothing could be compared.

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
    env: Given = ...,
    budget: float = 2.8,
    feeding: BenchmarkInputs = ...,
    shapes: Mapping[str, Sequence[int]] = ...,
    data: DataLike | None = None,
    input_range: tuple[float, float] = ...,
    allow_ops: Sequence[str] = (),
    header: HeaderRule = 'auto',
    columns: Mapping[str, str] | None = None,
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

    Tries threads, oneDNN, use of the calling thread in oneDNN, reuse of freed memory by the C
    library, batch sizes, concurrency, and the values of `env`. It searches for the lowest median
    latency and for the highest throughput. Settings from environment variables are not changed.

    At the end, it compares the best settings with TensorFlow's defaults, and with variants that
    undo one change, in interleaved rounds. The results are from this comparison. Only significantly
    faster settings are recommended, with as few changes as possible.

    `deploykit benchmark --tuned` reads the written file. After Ctrl-C, the same command resumes the
    search.

    In OpenVINO it tries threads, streams (one per concurrent request), memory and batch sizes.
    OpenVINO's outputs are first compared with TensorFlow's.

    Args:
        model: any model that `open_model` accepts.
        how: the goal, the time budget and the search space.
        feeding: the model inputs: data or synthetic values.
        header: Whether the first row of CSV files is a header; auto: if none of its cells is a
            number and none is empty. The columns of a file without one are named 0, 1 and so on.
        columns: Column of a table for an input that has another name, or several columns of numbers
            for a vector; may be repeated [default: the column of the input's name, or the only one
            that fits; for one input of numbers, all columns of a CSV file, without the last one if
            it is one more].
        output: also write the settings to this JSON file, which `load_tuned` reads. The search
            stores its trials in `OUTPUT.state`, from which the same call resumes after Ctrl-C.
        force: Replace an existing output file.

    FileError: a file is missing, unreadable or cannot be written. GraphError: the model is invalid,
    an input has no known shape, or the data does not match. RefusedError: an op acts on files or
    processes. LimitError: TensorFlow crashed or hung with its default settings, or in the final
    comparison.

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
    header: HeaderRule = 'auto',
    columns: Mapping[str, str] = ...,
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
    its input is compared too. In --json, infinite values are null, such as the signal-to-noise
    ratio of equal outputs. "verified" is false if nothing was compared.

    Args:
        reference: the model with the expected outputs; any model that `open_model` accepts.
        result: the model to compare with it.
        how: the inputs and the tolerance of the comparison.
        min_sqnr: Smallest signal-to-noise ratio allowed in dB, instead of --tolerance [default for
            a quantized RESULT: 15].

    If the reference does not run on synthetic inputs, the result has `verified=False` and a reason.
    GraphError: TensorFlow cannot load the reference, or the data does not match its inputs.

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
    if the folder has no records. Without an index, a shard that was truncated between two records
    looks complete; the result states this.

    Args:
        folder: the folder that contains the shards, or one TFRecord file.
        name: Name of the records, if DIR contains records of several names.
        processes: Number of worker processes, up to 1024 [default: one per CPU core].

    `check()` of the returned value raises VerificationError if there is a problem, or no record.
    FileError, GraphError: there is nothing to check, or the index is damaged.

    Commands:
        deploykit records verify records
        deploykit records verify train.tfrecord
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
    header: HeaderRule = 'auto',
    columns: Mapping[str, str] = ...,
    on_error: Literal['stop', 'skip'] = 'stop',
    shuffle: bool = False,
    cache: str | None = None,
    buckets: Sequence[int] = (),
    private_threads: int | None = None,
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

    DIR is a folder of TFRecords (written by deploykit records), of CSV files or of images, or a
    .npz file. The code needs only TensorFlow (and NumPy for .npz). It builds the same dataset
    that `deploykit benchmark --input tfdata` measures with the same options on this machine. To
    measure the file, run `deploykit benchmark MODEL --data DIR --pipeline FILE:dataset`, with FILE
    without .py.

    Args:
        data: a folder of TFRecords (`deploykit.convert_records`), of CSV files or of images, or an
            `.npz` file.
        model: Make batches for the inputs of this model [default: a tensor for each feature of the
            data].
        piping: the pipeline options `preprocess`, `header`, `shuffle`, `cache`, `buckets` and
            `private_threads`.
        batch: Records in a batch [default: the model's fixed batch, or 32].
        style: Kind of input pipeline.
        output: File to write [default: stdout].
        force: Replace an existing output file.

    FileError: a file is missing, unreadable or cannot be written. GraphError: the kind of the data
    is unknown, or the data does not match the model's inputs.

    Commands:
        deploykit input write photos --model model.pb --shuffle
        deploykit input write records --batch 32 -o input_pipeline.py

    Example:
        >>> found = deploykit.write_input("test_1000.npz", model="fashion.keras", batch=16)
        >>> "def " in found.text, found.pipeline.batch
        (True, 16)
    """
