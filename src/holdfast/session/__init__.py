"""Inside the training process: steps, saves, restores, notices."""
