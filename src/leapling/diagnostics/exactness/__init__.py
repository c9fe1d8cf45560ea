"""Is a kernel exact? Laws that every correct kernel obeys and no wrong one all of, as a report."""

from leapling.diagnostics.exactness.check import LAWS, check_kernel
from leapling.diagnostics.exactness.report import ExactnessReport, Law

__all__ = ["LAWS", "ExactnessReport", "Law", "check_kernel"]
