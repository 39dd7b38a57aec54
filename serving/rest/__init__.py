"""The API over HTTP, in JSON."""
