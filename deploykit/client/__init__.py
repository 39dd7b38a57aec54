"""Requests to a model or a server, their responses, and load tests."""
