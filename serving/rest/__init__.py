"""The REST API: HTTP and JSON."""
