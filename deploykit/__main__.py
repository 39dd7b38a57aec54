"""`python -m deploykit` is `deploykit`."""

from deploykit.cli.main import main

main()
