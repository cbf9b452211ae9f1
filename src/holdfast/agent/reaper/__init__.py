"""The reaper: a small parent for an attempt's ranks (see `__main__`)."""
