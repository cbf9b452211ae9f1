"""A history: a run's events as JSON lines, read, checked and written."""
