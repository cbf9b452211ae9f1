"""Standby interpreters: processes that have imported what a rank needs, and wait to become it.

What runs inside them is plain Python of the standard library, loaded by path: the user's
interpreter need not be ours, nor have us installed.
"""
