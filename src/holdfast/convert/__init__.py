"""Logs of runs that never knew Holdfast → a history, which the ordinary ledger accounts.

Readers (one a kind of log) turn lines into what they saw (`seen`); `story` makes attempts and steps
of it, `place` puts them on one clock; `notes` collects what was assumed, and what was odd.
"""
