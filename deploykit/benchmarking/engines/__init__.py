"""How a model is run by the engine that the settings ask for; this lives in child processes."""
