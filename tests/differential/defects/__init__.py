"""Where the original is wrong, aborts or hangs: one module a transform, each with a list DEFECTS.

Every module is found. To add a defect: a graph, the transform string, what each tool does in words
for docs/graph-transform-tool.md, and the same as checks (see judging.py).
"""
