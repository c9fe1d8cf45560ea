"""The race: recipes that need training, each given a share of the time, and the leader what is left of it."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from leapling.autopilot.candidates import NUM_CHAINS, NUM_DRAWS, Candidate, Problem
from leapling.autopilot.clock import Clock
from leapling.autopilot.flows import FlowCandidate, kinds_for
from leapling.autopilot.networks import NetworkCandidate, from_hmc, polished
from leapling.training.flow import BATCH, BLOCK

GOOD_ENOUGH = 0.8  # effective draws per gradient, where 1 is an independent draw: more training has little to gain
FIRST_SHARE = 0.3  # of the time that is left, to each recipe in the first round
LEG = 4000  # iterations at most from one held-out measurement to the next
LEAST = 250  # iterations that are worth starting
GAIN = 0.05  # of the moves that were refused, fewer in a leg: with less, it is the last
ACCEPTED = 0.5  # by one kind of flow, for the other kind not to be tried
ENDING = 0.5  # what follows training takes: of the time that all before it took, on this machine as busy as it is,
ENDING_SHARE, ENDING_COMPILES = 0.08, 1.5  # and of the budget, and of the time that a flow took to compile
SPLINE_COST = (2.0, 0.35)  # of a spline, in that of an affine layer: at no dimension, and for each dimension
WORTH_ITERATIONS = 800  # of a spline


@dataclass
class Race:
    """Who is in it, and how fast each is; `compile` is how long the slowest flow took to compile, and
    `before` what all that went before the race took."""

    problem: Problem
    found: list[Candidate]
    clock: Clock
    num_valleys: int
    say: Callable[[str], None]
    seconds: dict[str, float] = field(default_factory=dict)
    compile: float = 2.0
    before: float = 0.0

    def __post_init__(self):
        self.before = self.clock.spent

    @property
    def left(self) -> float:
        """Seconds for training: the winner is checked and measured after it."""
        ending = ENDING * self.before + ENDING_SHARE * self.clock.budget + ENDING_COMPILES * self.compile
        return self.clock.left - ending

    @property
    def best(self) -> Candidate:
        return max(self.found, key=lambda c: c.scored.per_gradient if c.scored else 0.0)

    @property
    def is_won(self) -> bool:
        return self.best.scored is not None and self.best.scored.per_gradient >= GOOD_ENOUGH

    def tried(self) -> list[dict[str, Any]]:
        """Every recipe with its score, the best first; JSON-ready."""
        return [
            {**c.row(), "min_ess_per_gradient": c.scored.per_gradient if c.scored else None, "gradients": c.gradients}
            for c in sorted(self.found, key=lambda c: -(c.scored.per_gradient if c.scored else 0.0))
        ]

    def run(self) -> None:
        kinds = kinds_for(self.problem.dim)
        if self.num_valleys > 1:
            kinds = kinds[::-1]  # a few affine layers tear no density apart
        for kind in kinds:
            is_served = any(_acceptance(c) > ACCEPTED for c in self.found if isinstance(c, FlowCandidate))
            if self.is_won or is_served:
                break
            if self.clock.decide(f"try {kind}", lambda kind=kind: self._has_time_for(kind)):
                self._first_leg(FlowCandidate(self.problem, kind))
        self._go_on()
        for make in self._networks():
            candidate = make() if not self.is_won else None
            if candidate is not None:
                self._train_network(candidate)
        trained = [c for c in self.found if isinstance(c, FlowCandidate | NetworkCandidate)]
        self.clock.ledger.charge("training", sum(c.gradients for c in trained))

    def _has_time_for(self, kind: str) -> bool:
        if kind == "affine" or "affine" not in self.seconds:
            return self.left > 0.1 * self.clock.budget
        base, per_dim = SPLINE_COST
        factor = base + per_dim * self.problem.dim
        return factor * (self.seconds["affine"] * WORTH_ITERATIONS + self.compile) < 0.6 * self.left

    def _first_leg(self, candidate: FlowCandidate) -> None:
        began = time.perf_counter()
        self.seconds[candidate.kind] = candidate.probe()
        self.compile = max(self.compile, time.perf_counter() - began)
        self._leg(candidate, FIRST_SHARE)
        self.found.append(candidate)

    def _leg(self, candidate: FlowCandidate, share: float) -> None:
        """A fall of the learning rate over as many iterations as the time allows, and a held-out measurement.

        How many is decided again after each block, so that a machine that slows down ends the leg earlier.
        """
        began, first = time.perf_counter(), candidate.iterations
        # The measurement evaluates the flow once where an iteration evaluates it about twice.
        measuring = 0.5 * NUM_CHAINS * (NUM_DRAWS + 50) / BATCH * self.seconds[candidate.kind]
        measuring += self.compile if candidate.scored is None else 0.0
        allowed = share * self.left - measuring

        def num_iterations(done: int) -> int:
            spent = time.perf_counter() - began
            rate = self.seconds[candidate.kind] if done == 0 else spent / done
            fits = done + max(0.0, allowed - spent) / max(rate, 1e-7)
            return BLOCK * round(min(LEG, max(LEAST, fits)) / BLOCK)

        def decided(done: int) -> int:
            return self.clock.decide(f"{candidate.kind} flow at {first + done}", lambda: num_iterations(done))

        candidate.train(decided)
        self._measure(candidate, replace(self.problem, points=candidate.points()), began)

    def _measure(self, candidate: FlowCandidate | NetworkCandidate, problem: Problem, began: float) -> None:
        measured = candidate.measure(problem, problem.seed + 2)
        self.clock.ledger.charge("training", measured.num_gradients)
        self.say(
            f"{candidate.name}: min_ess per gradient {measured.per_gradient:.3g} after {candidate.iterations} "
            f"iterations ({time.perf_counter() - began:.0f} s)"
        )

    def _go_on(self) -> None:
        """The leading flow trains for as long as more of its moves are accepted; a leg that lost is taken back.

        Flows are compared by acceptance, which tells what effective draws tell of independent proposals, with less
        noise where tails are heavy.
        """
        flows = [c for c in self.found if isinstance(c, FlowCandidate)]
        if not flows:
            return
        leader = max(flows, key=_acceptance)

        def is_worth_it() -> bool:
            return not self.is_won and self.left > 2 * LEAST * self.seconds[leader.kind] + 3

        while self.clock.decide("go on", is_worth_it):
            before, state = leader.scored, leader.state
            refused = 1 - _acceptance(leader)
            self._leg(leader, 1.0)
            gain = refused - (1 - _acceptance(leader))
            if gain < 0:
                leader.state, leader.scored = state, before
            if gain < GAIN * refused:
                break
        self.problem = replace(self.problem, points=leader.points())

    def _networks(self) -> list[Callable[[], NetworkCandidate | None]]:
        """Recipes for the time that is left, the most promising first."""
        hmcs = [c for c in self.found if c.name.startswith("HMC")]
        hmc = max(hmcs, key=lambda c: c.scored.per_gradient if c.scored else 0.0)
        hot = self.num_valleys > 1

        def polish():
            leader = self.best
            return polished(self.problem, leader) if leader not in hmcs and leader.kernel.num_steps == 1 else None

        return [
            polish,
            lambda: from_hmc(self.problem, hmc, 2, hot=hot, force_gradient=True),
            lambda: from_hmc(self.problem, hmc, 2, hot=not hot, force_gradient=False),
        ]

    def _train_network(self, candidate: NetworkCandidate) -> None:
        if not self.clock.decide(f"try {candidate.name}", lambda: self.left > 0.15 * self.clock.budget):
            return
        began, allowed = time.perf_counter(), 0.8 * self.left
        candidate.train(
            lambda done: bool(
                self.clock.decide(f"{candidate.name} at {done}", lambda: time.perf_counter() - began < allowed)
            )
        )
        self.found.append(candidate)
        self._measure(candidate, self.problem, began)


def _acceptance(candidate: FlowCandidate) -> float:
    return candidate.scored.acceptance if candidate.scored else 0.0
