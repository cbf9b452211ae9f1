"""Compiled programs, kept: a local tier on each host, and a home in the run store."""
