"""Photos: in which range a model wants their values, and how large they are."""
