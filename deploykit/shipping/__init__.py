"""From a trained model to a served one: the commands in order, each result kept."""
