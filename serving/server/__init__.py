"""A process that serves: settings, ports, TLS, start and end."""
