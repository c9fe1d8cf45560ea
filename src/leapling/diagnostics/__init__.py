"""What the draws are worth (autocorrelation, effective sample sizes, R-hat) and whether the kernel is exact."""

from leapling.diagnostics.autocorrelation import autocorrelation
from leapling.diagnostics.ess import (
    ess_bulk,
    ess_by_statistic,
    ess_geyer,
    ess_paper,
    ess_paper_code,
    ess_tail,
    min_ess,
    min_ess_bulk,
    split_rhat,
)
from leapling.diagnostics.exactness import ExactnessReport, Law, check_kernel
from leapling.diagnostics.summary import summarise

__all__ = [
    "ExactnessReport",
    "Law",
    "autocorrelation",
    "check_kernel",
    "ess_bulk",
    "ess_by_statistic",
    "ess_geyer",
    "ess_paper",
    "ess_paper_code",
    "ess_tail",
    "min_ess",
    "min_ess_bulk",
    "split_rhat",
    "summarise",
]
