"""Skipped: names that start with an underscore are no problems."""
