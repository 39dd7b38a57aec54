"""Charts for files and pages.

Each function takes a value of deploykit or its JSON document, and returns a `chart.Chart`.
Functions with an optional result return None without data. `Chart.figure()` creates a matplotlib
figure, and `inline.svg(figure, label)` an `<svg>` element. `inline.CSS` contains the colours that
pages set, and `plots.picture` writes charts below each other to a file.
"""
