"""Capacity planning: measure one server, and simulate a queue before several replicas."""
