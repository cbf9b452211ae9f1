"""One per host: the loop, the reaper, child processes, signals, output."""
