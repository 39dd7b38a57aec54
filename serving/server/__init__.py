"""The server process: settings, ports, TLS, startup and shutdown."""
