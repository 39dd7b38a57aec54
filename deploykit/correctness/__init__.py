"""How often models are right on labelled samples, and where two of them answer otherwise."""
