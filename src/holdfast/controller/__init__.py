"""The controller of a run: between the core, which decides, and the ports, which act."""
