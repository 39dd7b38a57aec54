"""Variables and tables that a model updates while it runs, and what remains of the updates in a
frozen graph.
"""
