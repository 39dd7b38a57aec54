"""Where workers run: processes of this machine, or actors of Ray."""
