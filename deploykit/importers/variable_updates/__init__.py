"""Variables and tables that a model updates while it runs, and the effect of these updates in a
frozen graph.
"""
