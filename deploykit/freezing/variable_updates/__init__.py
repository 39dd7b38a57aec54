"""What updates do with variables: inside functions, and the values that they leave behind."""
