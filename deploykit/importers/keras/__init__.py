"""Import of Keras files and archives with the Keras version that wrote them."""
