"""What a check of exactness found: one line per law, one verdict."""

from dataclasses import asdict, dataclass
from typing import Literal

Status = Literal["passed", "failed", "void", "on a stand-in", "not run"]


@dataclass(frozen=True)
class Law:
    """One law a kernel must obey; `detail` says what was measured, in which unit, and with how much effort.

    `void` means that the check ran and could not have failed; a law that was not run spoils the verdict only
    where it is `required`.
    """

    name: str
    status: Status
    measured: float | None
    tolerance: float | None
    detail: str
    required: bool = True

    @property
    def holds(self) -> bool:
        return self.status in ("passed", "on a stand-in") or (self.status == "not run" and not self.required)


@dataclass(frozen=True)
class ExactnessReport:
    """The laws of one kernel on one energy."""

    kernel: str
    energy: str
    laws: tuple[Law, ...]

    @property
    def passed(self) -> bool:
        return bool(self.laws) and all(law.holds for law in self.laws)

    @property
    def failed_laws(self) -> tuple[str, ...]:
        return tuple(law.name for law in self.laws if law.status == "failed")

    def __getitem__(self, name: str) -> Law:
        for law in self.laws:
            if law.name == name:
                return law
        raise KeyError(f"no law {name!r} in this report, which has {', '.join(law.name for law in self.laws)}")

    @property
    def verdict(self) -> str:
        if self.failed_laws:
            return f"FAILED: {', '.join(self.failed_laws)}"
        missing = [f"{law.name} is {law.status}" for law in self.laws if not law.holds]
        if missing or not self.laws:
            return f"NOT CERTIFIED: {', '.join(missing) or 'no law was run'}"
        borrowed = [law.name for law in self.laws if law.status == "on a stand-in"]
        return "passed" + (f", {' and '.join(borrowed)} on a stand-in" if borrowed else "")

    def __str__(self) -> str:
        rows = [("law", "status", "measured", "tolerance", "detail")]
        rows += [(law.name, law.status, _number(law.measured), _number(law.tolerance), law.detail) for law in self.laws]
        widths = [max(len(row[column]) for row in rows) for column in range(4)]
        lines = ["  ".join([*(cell.ljust(w) for cell, w in zip(row, widths, strict=False)), row[4]]) for row in rows]
        return "\n".join([f"exactness of {self.kernel} on {self.energy}", *lines, f"verdict: {self.verdict}"])

    def to_dict(self) -> dict:
        """JSON-ready; a number that is not finite is None."""
        laws = [
            {**asdict(law), "measured": _finite(law.measured), "tolerance": _finite(law.tolerance)} for law in self.laws
        ]
        return {
            "kernel": self.kernel,
            "energy": self.energy,
            "passed": self.passed,
            "verdict": self.verdict,
            "laws": laws,
        }

    def assert_passed(self) -> None:
        if not self.passed:
            raise AssertionError(str(self))


def not_run(name: str, reason: str, *, required: bool) -> Law:
    return Law(name, "not run", None, None, reason, required)


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3g}"


def _finite(value: float | None) -> float | None:
    return value if value is not None and abs(value) < float("inf") else None
