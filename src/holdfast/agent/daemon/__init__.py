"""`holdfast agent`: on a notice it tells the processes that hold accelerators to save."""
