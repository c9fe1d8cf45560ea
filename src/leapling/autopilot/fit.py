"""`fit(energy)`: from an energy to a certified sampler with a verdict, within a budget, with nothing set by hand."""

import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import jax.numpy as jnp
import numpy as np

from leapling.autopilot import baselines
from leapling.autopilot.candidates import Candidate, Fixed, Problem, closed_form
from leapling.autopilot.certificate import certify
from leapling.autopilot.clock import Clock, seconds_of
from leapling.autopilot.fitted import Bare, Fitted
from leapling.autopilot.measure import Score, draw, score, speed
from leapling.autopilot.occupation import watch_modes
from leapling.autopilot.race import race
from leapling.autopilot.verdict import CLEARLY, Verdict, pays_after, sentences, warnings_of
from leapling.autopilot.warmup import COST, mover, warm_up
from leapling.checks import check_energy, dimension

WARM_UP, TUNING, ENDING = 0.10, 0.08, 0.30  # of the budget: warm-up, tuning of each HMC, and all that follows training
LONGEST_ENDING = 60.0
PARTICLES = (256, 2048)
GRADIENTS = (50, 1000)  # of an HMC setting in the first round of tuning
FINAL_CHAINS, FINAL_DRAWS, SETTLING = 128, 1000, 100
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
                candidate.measure(problem, self.seed + 1)
                clock.ledger.charge("tuning HMC", candidate.gradients + candidate.scored.num_gradients)
                self.say(f"{candidate.name}: min_ess per gradient {candidate.scored.per_gradient:.3g}")
                found.append(candidate)
        return found

    def closed_forms(self, problem: Problem) -> list[Candidate]:
        found = []
        with self.clock.stage("closed forms"):
            for shape in ("diagonal", "dense") if self.dim > 1 else ("diagonal",):
                candidate = closed_form(problem, shape)
                candidate.measure(problem, self.seed + 1)
                self.clock.ledger.charge("closed forms", candidate.gradients + candidate.scored.num_gradients)
                self.say(f"{candidate.name}: min_ess per gradient {candidate.scored.per_gradient:.3g}")
                found.append(candidate)
        return found

    def measure(self, candidate: Candidate, problem: Problem) -> tuple[Score, int]:
        """On fresh chains, by the same number of draws whoever they are of."""
        per_draw = candidate.scored.gradients_per_draw if candidate.scored else 1.0

        def affordable() -> int:
            seconds = 0.05 * self.clock.budget
            return int(np.clip(seconds * self.rate / (2 * FINAL_CHAINS * per_draw), 100, FINAL_DRAWS))

        num_draws = self.clock.decide(f"draws of {candidate.name}", affordable)
        draws = draw(
            candidate.kernel,
            candidate.coordinates,
            self.energy,
            positions=problem.starts(FINAL_CHAINS, 11),
            num_draws=num_draws,
            num_warmup=SETTLING,
            seed=self.seed + 11,
            warn=False,
        )
        return score(draws), num_draws

    def finish(self, problem: Problem, ends: np.ndarray, found: list[Candidate]) -> Fitted:
        clock, ledger = self.clock, self.clock.ledger
        hmcs = [c for c in found if c.name.startswith("HMC")]
        winner = max(found, key=lambda c: c.scored.per_gradient if c.scored else 0.0)
        with clock.stage("checking"):
            exactness = certify(winner.kernel, winner.coordinates, self.energy, problem.points, seed=self.seed)
        self.say(f"{winner.name}: exactness {exactness.verdict}")
        shared = ledger.gradients.get("warm-up", 0)
        rows, winners = [], None
        with clock.stage("measuring"):
            for candidate in [winner, *(c for c in hmcs if c is not winner)]:
                measured, num_draws = self.measure(candidate, problem)
                ledger.charge("measuring", measured.num_gradients)
                preparation = shared + candidate.gradients
                rows.append(
                    {**measured.row(candidate.name), "num_draws": num_draws * FINAL_CHAINS, "preparation": preparation}
                )
                winners = winners or measured
                self.say(f"{candidate.name}: min_ess per gradient {measured.per_gradient:.3g} on fresh chains")
            modes, spent = watch_modes(
                problem, winner, ends, min(rows[0]["num_draws"] // FINAL_CHAINS, FINAL_DRAWS), self.seed + 13
            )
            ledger.charge("measuring", spent)
            if row := self._nuts(problem):
                rows.append({**row, "preparation": row["preparation"]})
        tried = [
            {**c.row(), "min_ess_per_gradient": c.scored.per_gradient if c.scored else None, "gradients": c.gradients}
            for c in sorted(found, key=lambda c: -(c.scored.per_gradient if c.scored else 0.0))
        ]
        assert winners is not None
        grave, mild = warnings_of(rows[0], winners, modes, exactness)
        is_hmc = winner in hmcs
        best_hmc = max((r for r in rows if r["method"].startswith("HMC")), key=lambda r: r["min_ess_per_gradient"])
        worth = rows[0]["min_ess_per_gradient"] > CLEARLY * best_hmc["min_ess_per_gradient"]
        status = "poor" if grave else "use HMC" if is_hmc or not worth else "good"
        pays = None if is_hmc else pays_after(rows[0], best_hmc)
        verdict = Verdict(
            status=status,
            winner=winner.name,
            methods=rows,
            tried=tried,
            ledger=ledger.rows(),
            modes=modes,
            exactness=exactness.to_dict(),
            pays_after=pays,
            warnings=grave + mild,
            sentences=sentences(status, rows[0], best_hmc, pays, is_hmc),
        )
        kept = {c.name: (c.kernel, c.coordinates) for c in hmcs}
        return Fitted(
            winner.kernel, winner.coordinates, self.energy, verdict, problem.points, clock.path, self.seed, kept
        )

    def _nuts(self, problem: Problem) -> dict[str, Any] | None:
        if not self.clock.decide("NUTS", lambda: self.clock.left > NUTS_SECONDS):
            return None

        def num_blocks(seconds: float) -> int:
            return self.clock.decide("NUTS blocks", lambda: max(2, min(20, int(NUTS_SECONDS / 2 / max(seconds, 1e-3)))))

        found = baselines.nuts(problem, NUTS_SECONDS, num_blocks)
        if found is None:
            return None
        measured, adaptation, _ = found
        self.clock.ledger.charge("measuring", measured.num_gradients + adaptation)
        self.say(f"NUTS, dense metric: min_ess per gradient {measured.per_gradient:.3g}")
        return {**measured.row("NUTS, dense (BlackJAX)"), "num_draws": None, "preparation": adaptation}


def fit(
    energy: Callable,
    dim: int | None = None,
    *,
    budget: str | float = "2 min",
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
    deadline = clock.budget - min(ENDING * clock.budget, LONGEST_ENDING)
    with clock.stage("training"):
        found, problem = race(problem, found, clock, deadline, run.say)
    return replace(run.finish(problem, ends, found), energy=energy)
