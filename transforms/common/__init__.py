"""Errors and their messages, JSON documents and parameter metadata, used by all modules."""
