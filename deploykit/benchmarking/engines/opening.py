"""A model in the engine that the settings ask for, and in a process of its own."""

from deploykit.benchmarking.engines.openvino_runner import OpenVinoRunner
from deploykit.benchmarking.engines.runner import Runner
from deploykit.benchmarking.engines.tensorflow_runner import TensorFlowRunner
from deploykit.benchmarking.job import Job
from deploykit.transforms.core.engines.engines import OPENVINO, TENSORFLOW, TITLES
from deploykit.transforms.core.running.child import Worker


def started(job: Job) -> Worker:
    """Return a process of its own with a Runner, in the environment that the settings ask for."""
    settings = job.settings
    runs = TITLES[settings.engine or TENSORFLOW]
    return Worker(f"{__name__}:opened", job, forced=settings.environment, runs=runs)


def opened(job: Job, like: Runner | None = None) -> Runner:
    """Load a model; a further session may share what another one has loaded.

    GraphError: the engine does not accept the graph, or cannot run it.
    """
    if job.settings.engine == OPENVINO:
        return OpenVinoRunner(job)
    return TensorFlowRunner(job, like if isinstance(like, TensorFlowRunner) else None)
