"""A trained model in any format read as one frozen graph."""
