"""Effects and state: what control inputs order, and how to wait for effects in branches."""
