"""What a run amounts to: scores, and pages that show them."""

from assay.report.gathering import Gathered, gather, summary_of

__all__ = ["Gathered", "gather", "summary_of"]
