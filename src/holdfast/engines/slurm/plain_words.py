"""Slurm's states, reasons and complaints in plain words, and then what Slurm said. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence

_STATES = {
    "PENDING": "waits",
    "CONFIGURING": "its nodes are made ready",
    "RUNNING": "runs",
    "COMPLETING": "ends",
    "SUSPENDED": "is suspended",
    "COMPLETED": "is over",
    "CANCELLED": "was cancelled",
    "FAILED": "has failed",
    "TIMEOUT": "has reached its time limit",
    "DEADLINE": "has reached its deadline",
    "NODE_FAIL": "has lost a node",
    "OUT_OF_MEMORY": "has used more memory than it has",
    "BOOT_FAIL": "its nodes have not booted",
    "PREEMPTED": "was preempted",
    "REVOKED": "was started on another cluster",
    "SPECIAL_EXIT": "is held back after an error: `scontrol release` lets it go",
    "REQUEUE_HOLD": "is held back: `scontrol release` lets it go",
}
# Reasons with which a job waits until somebody does something; and those that are not plain.
_REASONS = {
    "JobHeldAdmin": "an operator holds it back",
    "JobHeldUser": "its user holds it back: `scontrol release` lets it go",
    "launch_failed_requeued_held": "its start failed on a node: look, then `scontrol release` it",
    "PartitionTimeLimit": "its time is above the partition's limit",
    "PartitionNodeLimit": "it wants more nodes than a job may have in that partition",
    "PartitionDown": "the partition is down",
    "PartitionInactive": "the partition is switched off",
    "BadConstraints": "no node can be what it asks for",
    "DependencyNeverSatisfied": "what it depends on has failed",
    "InvalidAccount": "its account is not known",
    "InvalidQOS": "its quality of service is not known",
    "ReqNodeNotAvail": "nodes that it needs are down, drained or reserved",
    "Resources": "the nodes are in use",
    "Priority": "other jobs are first",
    "BeginTime": "Slurm lets a requeued job wait a moment",
    "NonZeroExitCode": "its script has ended with an error",
}


# What its programs say when they fail, and what that means.
_FAILURES = {
    "Unable to contact slurm controller": "no controller of Slurm answers here",
    "Invalid job id": "Slurm does not know that job any more",
    "Invalid account": "--option account: you have no such account here",
    "Invalid qos": "--option qos: Slurm does not let you use that quality of service here",
    "node configuration is not available": "no node that the partition has is what was asked for",
    "Invalid generic resource": "--option gres: no node has such a resource",
    "Memory specification can not": "--option memory: no node has so much",
    "CPU count per node can not": "--option cpus: no node has so many",
    "Invalid feature": "no node has the feature that --option sbatch asks for",
    "group not permitted": "--option partition: your group may not use that partition",
    "accounting/QOS policy": "a limit of your account or its quality of service is reached",
    "time limit": "--option time: Slurm does not allow so long there",
    "Job dependency": "--option sbatch: what it is to wait for is not there",
    "not permitted": "Slurm does not let you do that",
    "ermission denied": "Slurm does not let you do that",
    "Invalid user id": "Slurm does not let you do that",
    "unrecognized option": "--option sbatch: there is no such option",
    "invalid option": "--option sbatch: there is no such option",
}


def failure_in_words(words: Sequence[str], said: str, code: int) -> str:
    """A program of Slurm has failed: what that means, and then what it has said."""
    noise = rf"\b(?:{words[0]}|slurm_\w+)(?:: error|: fatal| error)?: |Try .sbatch --help.*"
    plain = re.sub(noise, "", said).strip()
    means = next((means for part, means in _FAILURES.items() if part in plain), "")
    means = means or f"Slurm has refused `{' '.join(words[:3])}`"
    return f"{means}; {words[0]} says {plain!r}" if plain else f"{means}, with code {code}"


def state_in_words(state: str, reason: str, restarts: str) -> str:
    """How a job stands, and then Slurm's own words. `restarts`: how often it was requeued."""
    words = _STATES.get(state, "is in a state of its own")
    if restarts not in ("", "0"):
        words += f", requeued {restarts} time{'s' if restarts != '1' else ''}"
    words += f": {_REASONS[reason]}" if reason in _REASONS else ""
    return f"{words} (Slurm: {state}{', ' if reason else ''}{reason})"
