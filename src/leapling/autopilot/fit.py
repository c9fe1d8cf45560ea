"""`fit(energy)`: from an energy to a certified sampler with a verdict, within a budget, with nothing set by hand."""

import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import jax.numpy as jnp
import numpy as np

from leapling.autopilot import baselines
from leapling.autopilot.candidates import NUM_CHAINS, Candidate, Fixed, Problem, closed_form
from leapling.autopilot.certificate import certify
from leapling.autopilot.clock import Clock, seconds_of
from leapling.autopilot.fitted import Bare, Fitted
from leapling.autopilot.measure import Score, draw, score, speed
from leapling.autopilot.modes import Modes, find_modes
from leapling.autopilot.occupation import watch_modes, which_groups
from leapling.autopilot.race import Race
from leapling.autopilot.verdict import judge
from leapling.autopilot.warmup import COST, mover, warm_up
from leapling.checks import check_energy, dimension

WARM_UP, TUNING, MEASURING = 0.10, 0.08, 0.03  # of the budget: warm-up, tuning of each HMC, measuring of each method
PARTICLES = (256, 2048)
GRADIENTS = (50, 1000)  # of an HMC setting in the first round of tuning
DRAWS, SETTLING = (100, 1000), 100
MOST_ENDS = 64  # of warm-up's search, whose valleys are looked at beside those of its particles
NUTS_SECONDS = 8.0


@dataclass
class Fit:
    """The stages of one fit, and what passes between them."""

    energy: Callable
    dim: int
    clock: Clock
    seed: int
    progress: bool | None

    def say(self, text: str) -> None:
        if self.progress or (self.progress is None and sys.stderr.isatty()):
            print(f"[{self.clock.spent:5.0f} s] {text}", file=sys.stderr, flush=True)

    def warm_up(self, positions: np.ndarray | None) -> tuple[Problem, np.ndarray]:
        clock, (fewest, most) = self.clock, PARTICLES
        with clock.stage("warm-up"):
            probe = jnp.zeros((self.dim, 1024)) if positions is None else jnp.asarray(positions.T[:, :1024])
            rate = speed(self.energy, probe)

            def affordable() -> int:
                return 2 ** int(np.log2(np.clip(WARM_UP * clock.budget * rate / COST, fewest, most)))

            num = clock.decide("particles", affordable)
            found = warm_up(
                self.energy,
                dim=self.dim,
                num_particles=num,
                seed=self.seed,
                positions=None if positions is None else positions.T,
            )
            clock.ledger.charge("warm-up", found.num_gradients)
        self.rate = rate
        self.say(f"warm-up: {num} particles through {found.num_temperatures} temperatures")
        ends = found.ends if positions is None else np.concatenate([found.ends, positions.T], axis=1)
        local = mover(found.particles, found.step_size)
        return Problem(self.energy, found.particles, local, self.seed), ends

    def tune(self, problem: Problem) -> list[Candidate]:
        """HMC as hard as ourselves: it is the baseline, and what is left if nothing beats it."""
        clock, found = self.clock, []
        shapes = [None, "dense"] if self.dim > 1 else [None]
        with clock.stage("tuning HMC"):
            for shape in shapes:

                def affordable() -> int:
                    seconds = TUNING * clock.budget
                    return int(np.clip(seconds * self.rate / baselines.PLANNED / 4, *GRADIENTS))

                gradients = clock.decide(f"tuning {shape}", affordable)
                candidate, _ = baselines.tuned_hmc(problem, shape, gradients)
                scored = candidate.measure(problem, self.seed + 1)
                clock.ledger.charge("tuning HMC", candidate.gradients + scored.num_gradients)
                self.say(f"{candidate.name}: min_ess per gradient {scored.per_gradient:.3g}")
                found.append(candidate)
        return found

    def closed_forms(self, problem: Problem) -> list[Candidate]:
        found = []
        with self.clock.stage("closed forms"):
            for shape in ("diagonal", "dense") if self.dim > 1 else ("diagonal",):
                candidate = closed_form(problem, shape)
                scored = candidate.measure(problem, self.seed + 1)
                self.clock.ledger.charge("closed forms", candidate.gradients + scored.num_gradients)
                self.say(f"{candidate.name}: min_ess per gradient {scored.per_gradient:.3g}")
                found.append(candidate)
        return found

    def valleys(self, problem: Problem, ends: np.ndarray, positions: np.ndarray | None) -> Modes:
        with self.clock.stage("modes"):
            few = ends.T[np.random.default_rng(self.seed).integers(ends.shape[1], size=MOST_ENDS)]
            points = np.concatenate([few, problem.points.T[: 3 * MOST_ENDS]])
            modes, spent = find_modes(self.energy, points, positions)
            self.clock.ledger.charge("modes", spent)
        self.say(f"{modes.num} valley{'s' * (modes.num > 1)} met")
        return modes

    def measure(self, candidate: Candidate, problem: Problem) -> tuple[Score, int]:
        """On fresh chains."""
        num_draws = self.clock.decide(f"draws of {candidate.name}", lambda: self._affordable(candidate, 1))
        draws = draw(
            candidate.kernel,
            candidate.coordinates,
            self.energy,
            positions=problem.starts(NUM_CHAINS, 11),
            num_draws=num_draws,
            num_warmup=SETTLING,
            seed=self.seed + 11,
            warn=False,
        )
        return score(draws), num_draws

    def _affordable(self, candidate: Candidate, num_runs: int) -> int:
        """Draws of each of NUM_CHAINS chains, for MEASURING of the budget in all runs together."""
        assert candidate.scored is not None
        per_draw = NUM_CHAINS * candidate.scored.seconds_per_draw
        return int(np.clip(MEASURING * self.clock.budget / (num_runs * per_draw), *DRAWS))

    def finish(self, race: Race, modes: Modes) -> Fitted:
        clock, ledger, problem, winner = self.clock, self.clock.ledger, race.problem, race.best
        hmcs = [c for c in race.found if c.name.startswith("HMC")]
        preparation = ledger.total_gradients
        measurements: list[tuple[Candidate, Score, dict[str, Any]]] = []
        with clock.stage("measuring"):
            for candidate in [winner, *(c for c in hmcs if c is not winner)]:
                measured, num_draws = self.measure(candidate, problem)
                ledger.charge("measuring", measured.num_gradients)
                # A winner has cost all that was spent; HMC alone would have cost its own tuning, from the same warm-up.
                paid = preparation if candidate not in hmcs else ledger.gradients["warm-up"] + candidate.gradients
                row = {"num_draws": num_draws * NUM_CHAINS, "preparation": paid}
                measurements.append((candidate, measured, {**measured.row(candidate.name), **row}))
                self.say(f"{candidate.name}: min_ess per gradient {measured.per_gradient:.3g} on fresh chains")
        # On fresh chains HMC may be ahead of who led on held-out ones: then it is what the user gets.
        measurements.sort(key=lambda m: -m[1].per_gradient)
        winner, winners, _ = measurements[0]
        rows = [row for _, _, row in measurements]
        with clock.stage("checking"):
            exactness = certify(winner.kernel, winner.coordinates, self.energy, problem.points, seed=self.seed)
        self.say(f"{winner.name}: exactness {exactness.verdict}")
        with clock.stage("measuring"):
            num_groups = max(1, len(which_groups(modes)))
            num_draws = clock.decide("draws from each valley", lambda: self._affordable(winner, num_groups))
            seen, spent = watch_modes(problem, winner, modes, num_draws, self.seed + 13)
            ledger.charge("measuring", spent)
            rows += self._nuts(problem)
        verdict = judge(
            rows,
            winners,
            winner_is_hmc=winner in hmcs,
            tried=race.tried(),
            ledger=ledger,
            modes=seen,
            exactness=exactness,
        )
        kept = {c.name: (c.kernel, c.coordinates) for c in hmcs}
        return Fitted(
            winner.kernel, winner.coordinates, self.energy, verdict, problem.points, clock.path, self.seed, kept
        )

    def _nuts(self, problem: Problem) -> list[dict[str, Any]]:
        if not self.clock.decide("NUTS", lambda: self.clock.left > 1.5 * NUTS_SECONDS):
            return []

        def num_blocks(seconds: float) -> int:
            return self.clock.decide("NUTS blocks", lambda: max(2, min(20, int(NUTS_SECONDS / 2 / max(seconds, 1e-3)))))

        found = baselines.nuts(problem, num_blocks)
        if found is None:
            return []
        measured, adaptation, _ = found
        self.clock.ledger.charge("measuring", measured.num_gradients + adaptation)
        self.say(f"NUTS, dense metric: min_ess per gradient {measured.per_gradient:.3g}")
        return [{**measured.row("NUTS, dense (BlackJAX)"), "num_draws": None, "preparation": adaptation}]


def fit(
    energy: Callable,
    dim: int | None = None,
    *,
    budget: str | float | int = "2 min",
    seed: int = 0,
    initial_positions: np.ndarray | None = None,
    start_from: Fitted | None = None,
    path: list | None = None,
    progress: bool | None = None,
) -> Fitted:
    """The best exact sampler of exp(-U) that the budget allows, with a verdict.

    `energy` is U, a function of one point of shape (dim,), or a Target (of which only U and the dimension are used).
    `initial_positions`, (chain, dim), say where to look for the target. `start_from` is a fit to a neighbouring target,
    whose sampler enters the race. `path` of an earlier fit replays it: its counts in place of the clock, the same bits.
    """
    clock = Clock(seconds_of(budget), path)
    positions = None if initial_positions is None else np.asarray(initial_positions, np.float32)
    if positions is not None and (positions.ndim != 2 or not np.isfinite(positions).all()):
        raise ValueError(f"initial_positions must be finite numbers of shape (chain, dim), got shape {positions.shape}")
    dim = dimension(None, energy, dim, positions)
    check_energy(energy, dim)
    run = Fit(Bare(energy), dim, clock, seed, progress)
    problem, ends = run.warm_up(positions)
    found = run.tune(problem)
    found += run.closed_forms(problem)
    if start_from is not None:
        given = Fixed("start_from", start_from.kernel, start_from.coordinates, 0, {"coordinates": "as given", "M": 1})
        given.measure(problem, seed + 1)
        found.append(given)
    modes = run.valleys(problem, ends, positions)
    contest = Race(problem, found, clock, modes.num, run.say)
    with clock.stage("training"):
        contest.run()
    return replace(run.finish(contest, modes), energy=energy)
