"""Say how many replicas a load takes."""

import click

from deploykit.cli import options
from deploykit.cli.options.types import Finite, PathName, Span, Whole
from deploykit.planning.plan_options import LOSSES, MOST_REPLICAS, PlanOptions
from deploykit.serving.client.connection import Connection
from deploykit.transforms.core.engines.engines import MOST_BATCH

_measured = options.under("Measurement")


@options.command(
    "Plan",
    examples=(
        "deploykit plan localhost:8500 fashion --data models/fashion/test_1000.npz \\\n"
        "      --rate 5000 --p99 50",
        "deploykit plan load.json --rate 5000 --p99 50 --survive zone --price 0.17",
        "deploykit plan localhost:8500 fashion --data models/fashion/test_1000.npz \\\n"
        "      --rate 5000 --p99 50 --manifests served --plot plan.png",
    ),
)
@click.argument("source", type=PathName())
@click.argument("model", required=False)
@click.option("--rate", type=Finite(above=0), required=True, metavar="CALLS",
              help="Calls a second that all replicas together get.")  # fmt: skip
@click.option("--p99", "p99_ms", type=Finite(above=0), required=True, metavar="MS",
              help="Milliseconds within which 99 % of the calls are to be answered.")  # fmt: skip
@click.option("--replicas", type=Span(1, 1_000_000), default=f"1..{MOST_REPLICAS}",
              show_default=True, help="The fewest and the most replicas to plan with.")  # fmt: skip
@click.option("--survive", type=click.Choice(LOSSES), default=PlanOptions.survive,
              show_default=True, help="What may be lost while 99 % of the calls stay within the "
              "limit: plan so many replicas more.")  # fmt: skip
@click.option("--zones", type=Whole(1), default=PlanOptions.zones, show_default=True, metavar="N",
              help="Zones over which the replicas are spread evenly.")  # fmt: skip
@click.option("--cores", type=Whole(1), metavar="N", help="Cores of one replica [default: those of "
              "the server, if it runs on this machine, or as many as the calls that it computes at "
              "the same time].")  # fmt: skip
@click.option("--price", type=Finite(above=0), metavar="AMOUNT", help="What one replica costs for "
              "an hour, to show the cost of the plan.")  # fmt: skip
@click.option("--manifests", type=PathName("DIR"), help="Fill the numbers of replicas into "
              "kubernetes.yaml and kserve.yaml in this folder, which deploykit export --manifests "
              "wrote; all else in them stays.")  # fmt: skip
@_measured("--data", type=PathName("DATA"), help="Samples to send one after another: a .npz file "
           "of arrays by input name, a folder of TFRecords, images or CSV files, or DIR/NAME where "
           "DIR holds records of several names.")  # fmt: skip
@options.preprocess
@_measured("--batch", type=Whole(1, MOST_BATCH), default=PlanOptions.batch,
           show_default=True, metavar="N",
           help="Samples in each call.")  # fmt: skip
@_measured("--seconds", type=Finite(above=0), default=PlanOptions.seconds, show_default=True,
           metavar="S", help="How long each load lasts; there are some 36 of them.")  # fmt: skip
@_measured("--processes", type=Whole(1, 64), default=PlanOptions.processes, show_default=True,
           metavar="N", help="Processes that send the calls, up to 64, if one cannot send "
           "enough.")  # fmt: skip
@options.server_option("--signature", metavar="NAME", help="Signature of the model [default: "
              "serving_default, or the only one].")  # fmt: skip
@options.which_version
@options.connection
@options.results(
    options.output_option("--plot", "plot_file", type=PathName("FILE.png|svg"),
                 help="Draw p99 over the calls that each replica gets."),
)  # fmt: skip
@options.everywhere
def plan(
    source: str,
    model: str | None,
    rate: float,
    p99_ms: float,
    replicas: tuple[int, int],
    survive: str,
    zones: int,
    cores: int | None,
    price: float | None,
    manifests: str | None,
    data: str | None,
    preprocess: str | None,
    batch: int,
    seconds: float,
    processes: int,
    signature: str | None,
    version: int | None,
    version_label: str,
    plot_file: str | None,
    connection: Connection,
    output: str | None,
    force: bool,
    as_json: bool,
) -> None:
    """Say how many replicas of a server a load takes.

    SOURCE is the address of a server, which counts as one replica and is measured: run it alone, on
    what each replica will have. Any server of the TensorFlow Serving API will do. Queues before
    many replicas are then simulated with what was measured, and the load that each of them would
    get is tried on the server, to compare. Or SOURCE is a file that deploykit load-test or
    deploykit benchmark --scenario server wrote with -o; then MODEL may be left out.

    P99 is that of replicas to which calls are dealt out at random, as by Kubernetes; beside it
    stands what a balancer reaches that sends each call to the least busy one. Exit status 5: no
    number of replicas will do, or the server does not do what was foreseen.
    """
    import deploykit
    from deploykit.cli.report import Report, show
    from deploykit.reporting.plan_plot import plot_plan
    from deploykit.reporting.plots import check_plot
    from deploykit.storage.files import check_output, write
    from deploykit.text.results.plan import lines
    from deploykit.transforms.core.errors import VerificationError

    if plot_file is not None:
        check_plot(plot_file)
        check_output(plot_file, force)
    report = Report("plan", data or source)
    found = deploykit.plan(
        source,
        model,
        data,
        connection=connection,
        rate=rate,
        p99_ms=p99_ms,
        replicas=replicas,
        survive=survive,
        zones=zones,
        cores=cores,
        price=price,
        manifests=manifests,
        preprocess=preprocess,
        batch=batch,
        seconds=seconds,
        processes=processes,
        signature=signature,
        version=version,
        version_label=version_label,
    )
    report.more, report.fed = found.document(), found.fed
    if plot_file is not None:
        write(plot_file, [plot_plan(report.more, plot_file)], force)
    if found.takes is not None:
        report.inputs, report.outputs = tuple(found.takes.inputs), tuple(found.takes.outputs)
    if found.problem:
        report.error = VerificationError("plan-not-met", reason=found.problem)
    show(report, as_json, text=lines(report.more), output=output, force=force)
