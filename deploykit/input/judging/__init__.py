"""What limits a run behind its input, and what to try next."""
