"""Models and their versions: found, loaded, replaced, and let go."""
