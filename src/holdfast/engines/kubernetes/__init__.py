"""Kubernetes as an engine: a JobSet or an Indexed Job with a pod for each host."""
