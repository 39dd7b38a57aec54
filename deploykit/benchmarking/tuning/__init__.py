"""Settings with which a model runs faster, searched for by short trials."""
