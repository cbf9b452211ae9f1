"""Holdfast keeps long training runs productive."""
