"""What `deploykit tune` finds on EfficientNet-Lite0 with folded batch norms, and how soon.

The figures are those of its last measurement, in turn with the defaults. Where oneDNN is on
by default, the defaults are the better half of the way already; so what was found is also measured
against oneDNN off, of which nothing is asked.
"""

import json
import tempfile
from pathlib import Path

import deploykit as api
from deploykit.benchmarking.run_config import RunConfig
from deploykit.benchmarking.speed_verdict import judge, seconds_an_item
from tests.benchmarks.figures import Figure
from tests.benchmarks.measuring import deploykit, run
from tests.benchmarks.nets import made_by

FASTER, ITEMS = 1.6, 1.9
SECONDS = 180


def figures() -> list[Figure]:
    """Tune once, as a user does."""
    with tempfile.TemporaryDirectory() as folder:
        model, tuned = str(Path(folder, "lite0.pb")), Path(folder, "lite0.tuned.json")
        graph = api.optimize(api.load_graph(made_by("efficientnet_lite0/build.py") / "frozen.pb"))
        api.save_graph(graph, model)
        taken = run(deploykit("tune", model, "-o", str(tuned)))
        found = json.loads(tuned.read_text())
        chosen = [RunConfig.of(found[goal]["settings"]) for goal in ("latency", "throughput")]
        off, alone, many = api.benchmark(
            {model: graph}, [RunConfig(batch=1, onednn=False), *chosen]
        ).measurements
    faster = found["latency"]["times_faster"]["value"]
    items = found["throughput"]["times_the_items"]["value"]
    over_off = judge(off, alone).wall.value
    items_over_off = judge(off, many, figure=seconds_an_item).wall.value
    return [
        Figure(f"lowest latency ({chosen[0]}): as fast", "x", [faster], at_least=FASTER),
        Figure(f"most items ({chosen[1]}): items/s", "x", [items], at_least=ITEMS),
        Figure(f"search of {len(found['trials'])} trials", "s", [taken.seconds], at_most=SECONDS),
        Figure("lowest latency against oneDNN off", "x", [over_off]),
        Figure("most items against oneDNN off", "x", [items_over_off]),
    ]
