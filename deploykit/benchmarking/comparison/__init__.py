"""Which of two is faster, how sure that is, and how results of different hours compare."""
