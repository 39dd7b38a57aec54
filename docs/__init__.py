"""The documentation, and the program that writes a part of it."""
