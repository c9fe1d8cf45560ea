"""Time and gradients: what each stage of a fit may spend, what it spent, and the path it took."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field


@dataclass
class Ledger:
    """Gradients and seconds by stage, in the order in which the stages began."""

    gradients: dict[str, int] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)

    def charge(self, stage: str, gradients: int) -> None:
        self.gradients[stage] = self.gradients.get(stage, 0) + gradients

    @property
    def total_gradients(self) -> int:
        return sum(self.gradients.values())

    @property
    def total_seconds(self) -> float:
        return sum(self.seconds.values())

    def rows(self) -> list[dict]:
        return [
            {"stage": stage, "gradients": self.gradients.get(stage, 0), "seconds": round(seconds, 2)}
            for stage, seconds in self.seconds.items()
        ]


class Clock:
    """A budget of wall-clock seconds. Whatever is decided by looking at it is written into `path`, and a path given to
    a later fit decides in the clock's place: the same counts, the same bits.
    """

    def __init__(self, budget: float, path: list | None = None):
        self.budget = budget
        self.began = time.perf_counter()
        self.ledger = Ledger()
        self.path: list = []
        self._replay = None if path is None else list(path)

    @property
    def spent(self) -> float:
        return time.perf_counter() - self.began

    @property
    def left(self) -> float:
        return self.budget - self.spent

    def decide(self, name: str, proposed: Callable[[], int]) -> int:
        """A count that depends on the clock: recorded, or taken from the record."""
        if self._replay is None:
            count = int(proposed())
        else:
            if not self._replay or self._replay[0][0] != name:
                given = self._replay[0][0] if self._replay else "its end"
                raise ValueError(
                    f"the path to replay has {given!r} where this fit is at {name!r}; it is of another fit"
                )
            count = int(self._replay.pop(0)[1])
        self.path.append([name, count])
        return count

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        began = time.perf_counter()
        try:
            yield
        finally:
            self.ledger.seconds[name] = self.ledger.seconds.get(name, 0.0) + time.perf_counter() - began


def seconds_of(budget: str | float | int) -> float:
    """A budget in words ("90 s", "2 min", "1 h") or in seconds."""
    if isinstance(budget, (int, float)):
        seconds = float(budget)
    else:
        text = budget.strip().lower()
        number = text.rstrip("abcdefghijklmnopqrstuvwxyz. ")
        unit = text[len(number) :].strip(" .")
        units = {"": 1, "s": 1, "sec": 1, "seconds": 1, "m": 60, "min": 60, "minutes": 60, "h": 3600, "hours": 3600}
        try:
            seconds = float(number) * units[unit]
        except (ValueError, KeyError):
            raise ValueError(
                f"the budget {budget!r} is no length of time; give for instance '90 s' or '2 min'"
            ) from None
    if not seconds > 0:
        raise ValueError(f"the budget must be above 0 seconds, got {budget!r}")
    return seconds
