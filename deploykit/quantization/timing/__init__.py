"""How long layers take in float and in 8 bits, and which of two graphs is the faster one."""
