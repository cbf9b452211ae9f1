"""Hosts: the machine of one attempt on one host, and the machines that a run is given."""
