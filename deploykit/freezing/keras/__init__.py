"""Models of Keras: files of every version, and archives that only Keras 2 could read."""
