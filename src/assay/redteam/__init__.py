"""Attacks and honest kernels with what each must get, run against the judge."""

from assay.redteam.corpus import Entry, read_entry, read_folder
from assay.redteam.walk import walk

__all__ = ["Entry", "read_entry", "read_folder", "walk"]
