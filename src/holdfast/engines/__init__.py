"""Where hosts come from past one machine: a file or folder for each engine."""
