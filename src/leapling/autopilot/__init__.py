"""From an energy to a certified sampler with a verdict."""

from leapling.autopilot.fit import fit
from leapling.autopilot.fitted import Fitted, load, read_path
from leapling.autopilot.verdict import Verdict

__all__ = ["Fitted", "Verdict", "fit", "load", "read_path"]
