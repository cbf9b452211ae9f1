"""Every reader that meets bytes which somebody else wrote."""

from __future__ import annotations

import fuzz_folders
import fuzz_journals
import fuzz_link
import fuzz_logs
import fuzz_profiles
import fuzz_sets
from fuzz_target import Target

TARGETS: dict[str, Target] = {
    target.name: target
    for target in (
        *fuzz_journals.TARGETS,
        *fuzz_sets.TARGETS,
        *fuzz_folders.TARGETS,
        *fuzz_link.TARGETS,
        *fuzz_logs.TARGETS,
        *fuzz_profiles.TARGETS,
    )
}
