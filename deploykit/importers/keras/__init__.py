"""Keras files and archives, read by the Keras version that wrote them."""
