"""How values show themselves."""
