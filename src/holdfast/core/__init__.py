"""The pure core: no IO, no clock, no randomness. What is simulated is what runs."""
