"""How many replicas a load takes: a server is measured, and a queue before several simulated."""
