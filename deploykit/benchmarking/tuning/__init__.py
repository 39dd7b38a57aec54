"""Search for settings with which a model runs faster, by short trials."""
