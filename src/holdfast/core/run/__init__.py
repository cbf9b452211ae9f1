"""The machine of a run: one table, and what is done before, during and after each attempt."""
