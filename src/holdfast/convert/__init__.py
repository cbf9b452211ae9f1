"""Logs of runs that never knew Holdfast → a history, which the ordinary ledger accounts.

`formats` describes the kinds of logs; by that, readers of lines, tables and curves say what they
saw (`seen`). `story` decides which attempt it belongs to and makes facts of it, `place` puts steps
on one clock; `notes` collects what was assumed, and what was odd.
"""
