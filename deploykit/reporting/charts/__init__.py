"""Charts, drawn once for files and for pages.

Each function takes a value of deploykit or its JSON document and returns a `chart.Chart`, as wide
as a phone; one that says so returns None where there is nothing to draw. `Chart.figure()` makes a
matplotlib figure of it, `inline.svg(figure, label)` an `<svg>` element, `inline.CSS` holds the
colours that pages set, and `plots.picture` puts charts side by side in a file.
"""
