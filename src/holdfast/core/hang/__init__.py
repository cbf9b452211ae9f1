"""Runs that stop getting on: the deadline, the look at the ranks, and the judgement."""
