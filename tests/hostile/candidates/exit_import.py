"""Leaves with success during its import, as if all had been done."""
# expect: crashed

import os

os._exit(0)

ModelNew = None
