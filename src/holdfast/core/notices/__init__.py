"""What is announced to a run, what several warnings say together, and what is done in time."""
