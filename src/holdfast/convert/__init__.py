"""Logs of runs that never knew Holdfast → a history, which the ordinary ledger accounts.

Readers (one a kind of log) turn lines into what they saw (`seen`); `story` decides whose each is,
`attempts` makes facts of it, `place` puts steps on one clock; `notes` collects what was assumed,
and what was odd.
"""
