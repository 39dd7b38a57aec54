"""What a layer of a network is in a graph: its weights, its padding, what follows it."""
