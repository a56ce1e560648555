"""Processes: the zygote, the confined child, the judge's handle on it, and memory both can see."""

from assay.worker.handle import Child, Nudge
from assay.worker.pool import Pool
from assay.worker.zygote_handle import Zygote

__all__ = ["Child", "Nudge", "Pool", "Zygote"]
