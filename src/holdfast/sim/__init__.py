"""Virtual time: the core that supervises real runs, driven by drawn or recorded faults."""
