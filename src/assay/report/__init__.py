"""What a run amounts to: scores, and pages that show them."""

from assay.report.gathering import Gathered, gather, gather_all, summary_of

__all__ = ["Gathered", "gather", "gather_all", "summary_of"]
