"""Import of trained models of any format as one frozen graph."""
