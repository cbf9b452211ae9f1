"""For hosts of the fault matrix: Python's `site` imports this, and a phase can be held there."""

import phase_hold

phase_hold.install()
