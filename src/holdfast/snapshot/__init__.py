"""Checkpoints: trees to bytes, durable sets, integrity. The RAM tier will live here too."""
