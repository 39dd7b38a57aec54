"""Graphs in memory: nodes, edges, functions, patterns, and the pipeline that runs transforms on
them.
"""
