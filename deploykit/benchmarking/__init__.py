"""How fast a model is: measuring, statistics, comparison, tuning, profile."""
