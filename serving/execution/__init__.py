"""Calls of a loaded version: checked, batched, computed. It knows no protocol."""
