"""Numbers for other people's systems: Prometheus, TensorBoard, Google Cloud. Each an extra.

Nothing here is on a run's way: exporters read what runs have written, in a process of their own.
"""
