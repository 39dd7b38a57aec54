"""Profiles: the time of each node and op in a call."""
