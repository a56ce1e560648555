"""sys.exit(0) during the import."""
# expect: build_failed

import sys

sys.exit(0)

ModelNew = None
