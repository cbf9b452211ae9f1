"""The command line: one file a command; the only place that composes everything."""
