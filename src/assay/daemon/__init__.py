"""The warm judge daemon: one process keeps judges ready, `assay check` asks it.

`client` and `protocol` import neither torch nor the judge, so that asking costs milliseconds; `server` does.
Nothing is imported here for the same reason.
"""
