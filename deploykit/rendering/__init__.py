"""Results, tables and progress as text for terminals, notebooks and files."""
