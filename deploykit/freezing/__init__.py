"""A trained model, in whatever form it was kept, becomes a frozen graph."""
