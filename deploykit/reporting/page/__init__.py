"""Result documents as a single HTML file."""
