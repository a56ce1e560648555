"""The clock: how fast a candidate is, against whom, how sure, and how near the physical limit."""
