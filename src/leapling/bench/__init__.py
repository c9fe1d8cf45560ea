"""What `leapling bench` runs."""

from leapling.bench.fit import BARS, bench_fit

__all__ = ["BARS", "bench_fit"]
