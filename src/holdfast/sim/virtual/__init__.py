"""A virtual run around the real controller: hosts, ranks, link, store, memory and clock, in parts.

The scenario tests, the random schedules and the simulator are made of these parts. Nothing waits
and nothing is random, so a run that is told the same things does the same things.
"""
