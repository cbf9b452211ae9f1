"""The agreed save: when one is due, how all ranks save one step, and the sets in memory."""
