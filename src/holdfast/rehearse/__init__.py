"""Rehearsals: a run of the user's own command, to which something is done, and what came of it.

Real processes and real signals; the services that warn are emulators on this host's loopback.
"""
