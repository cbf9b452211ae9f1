"""Where every chip-nanosecond went, from the facts of a run."""
