"""Show where each node of a model runs."""

import click

from deploykit.benchmarking.feeding import Feeding
from deploykit.benchmarking.settings import CPU_DEVICES, Settings
from deploykit.cli import options
from deploykit.cli.options.types import DeviceName, Whole
from deploykit.freezing.interface import Source
from deploykit.transforms.core.engines.engines import ENGINES, MOST_BATCH


@options.command("Running", requires=("tensorflow",))
@options.part
@options.feeding
@click.option("--batch", type=Whole(1, MOST_BATCH), metavar="N", help="Samples in a batch "
              "[default: what the model demands, or 1].")  # fmt: skip
@click.option("--engine", type=click.Choice(ENGINES), help="What computes; in openvino, one device "
              "computes all, and it is shown what that made of the graph [default: the one that "
              "the model was written for, else tensorflow].")  # fmt: skip
@click.option("--device", type=DeviceName(), default=Settings.device, show_default=True,
              help="Devices that TensorFlow may see; all: every GPU.")  # fmt: skip
@click.option("--cpu-devices", type=Whole(1, 64), default=CPU_DEVICES, show_default=True,
              metavar="N", help="Present the CPU as this many devices, up to 64, to try a "
              "placement without a GPU.")  # fmt: skip
@click.option("--no-soft-placement", is_flag=True, help="Fail if a node cannot run on the device "
              "that it asks for.")  # fmt: skip
@click.option("--log", is_flag=True, help="Print `name: (Op): device` for each node of the model "
              "instead, as TensorFlow's log_device_placement does.")  # fmt: skip
@options.result_file
@options.limits
@options.everywhere
def placement(
    source: Source,
    feeding: Feeding,
    batch: int | None,
    engine: str | None,
    device: str,
    cpu_devices: int,
    no_soft_placement: bool,
    log: bool,
    output: str | None,
    force: bool,
    as_json: bool,
) -> None:
    """Show on which device each node of a model really runs.

    Runs the model and shows what TensorFlow executed after it folded and fused nodes: each node
    with the device that the model asks for and the device that it got, the tensors that are copied
    between devices with their bytes for each run, and the nodes that silently ran on another
    device.

    In OpenVINO the CPU computes all. Shown are its ops with the precision that each computes in (u8
    and i8 are 8 bits), how many layers are in 8 bits, and how often numbers are only converted.

    To try other devices, set them with set_device of deploykit transform.
    """
    import deploykit
    from deploykit.cli.report import Report, show
    from deploykit.inspection.engine_placement import EnginePlacement
    from deploykit.text.results.placement import engine_lines, lines
    from deploykit.transforms.core.errors import GraphError

    if log and as_json:
        raise click.UsageError("give either --log or --json")
    report = Report("placement", source.model)
    found = deploykit.placement(
        source,
        feeding=feeding,
        batch=batch,
        engine=engine,
        device=device,
        cpu_devices=cpu_devices,
        soft_placement=not no_soft_placement,
    )
    report.of(found.model)
    report.more, report.fed = found.document(), found.fed
    if isinstance(found, EnginePlacement):
        if log:
            raise GraphError(
                "only-for", option="--log", what="the nodes of TensorFlow (--engine tensorflow)"
            )
        text = engine_lines(found)
    else:
        text = found.log() if log else lines(found)
    show(report, as_json, text=text, output=output, force=force)
