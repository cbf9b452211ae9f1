"""Holdfast in the loops of other frameworks: a file a framework, over `Run.framework`."""
