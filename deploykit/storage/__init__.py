"""Files and what they hold: opened with suspicion, written whole or not at all."""
