"""How many requests a version is warmed up with; apart, because the command line reads it too."""

MOST = 1000  # TensorFlow Serving refuses a version with more records
USUAL = 20  # enough to have every kernel ready; each costs time before a version answers
