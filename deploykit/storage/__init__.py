"""File formats of deploykit: untrusted input is validated, and output is written atomically."""
