"""Never finishes its import."""
# expect: timed_out

import time

while True:
    time.sleep(1)

ModelNew = None
