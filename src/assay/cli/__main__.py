"""`python -m assay.cli` where the console script is not installed."""

from assay.cli.main import main

main()
