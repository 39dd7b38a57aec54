"""What functions of the API found, drawn for people."""
