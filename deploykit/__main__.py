"""`python -m deploykit` is `deploykit`."""

from deploykit.cli import main

main()
