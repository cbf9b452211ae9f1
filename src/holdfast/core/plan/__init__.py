"""Closed forms: what a way of saving, spares and slices are worth."""
