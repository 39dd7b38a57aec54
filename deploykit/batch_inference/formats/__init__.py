"""Output formats: each writes the columns of a part as a file."""
