"""Charts, drawn once for pictures and for pages.

Each function takes a value of deploykit or its JSON document and returns a figure, as wide as a
phone; one that says so returns None where there is nothing to draw. `inline.svg(figure, label)`
makes an `<svg>` element of a figure, and `inline.CSS` holds the colours that pages set.

* `latencies.latencies(benchmark)`: how latencies are spread, a strip for each measurement.
* `throughput.throughput(benchmark)`: throughput over latency, a line for each model.
* `throughput.loads(load_test)`: the same of a server under load, or None.
* `throughput.trials(tuned)`: the same of settings that were tried, or None.
* `warm_ups.warm_ups(benchmark)`: the calls before the steady state, over time.
* `gains.gains(benchmark, tuned, quantized or ship)`: how many times better, or None.
* `profiles.ops(benchmark)`: time by op, a bar for each model that was profiled, or None.
* `profiles.nodes(profile)`: time by node of one profile, or None.
* `roofline.roofline(profile)`: what nodes reach of what the machine can do, or None.
* `layers.layer_noise(quantized)`: noise by layer, in the order of execution, or None.
* `layers.layer_times(quantized)`: time by layer in float and in 8 bits, or None.
* `replicas.replicas(plan)`: p99 of a replica over the calls that it gets, and the planned ones.
* `classes.classes(accuracy)`: how right models are by class, or None.

`figures.chart(draw)` makes a figure of anything that is drawn on a sheet; `plots.picture` puts
charts side by side in a file.
"""
