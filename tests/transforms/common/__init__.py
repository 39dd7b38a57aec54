"""Tests of how values are shown."""
