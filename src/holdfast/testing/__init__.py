"""Emulators of the services that Holdfast listens to, for tests and rehearsals on a laptop.

Each says so in its name and in its answers' `Server` header, follows the vendor's published
documents as far as Holdfast uses them, and can be scripted: to change what it says, to come late,
to fail, to answer nonsense. They listen on this host's loopback alone.
"""
