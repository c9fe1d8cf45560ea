"""The race: recipes that need training, each given a share of the time, the better ones more of it."""

import time
from collections.abc import Callable
from dataclasses import replace

from leapling.autopilot.candidates import Candidate, Problem
from leapling.autopilot.clock import Clock
from leapling.autopilot.flows import FlowCandidate, kinds_for

GOOD_ENOUGH = 0.8  # effective draws per gradient, where 1 is an independent draw: more training has little to gain
FIRST_SHARE = 0.25  # of the time, to each recipe of the first round
LEG = 4000  # iterations at most from one held-out measurement to the next
LEAST = 200  # iterations that are worth starting
GAIN = 1.05  # of a leg, below which the next one is the last


def race(
    problem: Problem, found: list[Candidate], clock: Clock, deadline: float, say: Callable[[str], None]
) -> tuple[list[Candidate], Problem]:
    """All candidates, the trained ones among them, and the problem with the points that training left."""
    if best(found) >= GOOD_ENOUGH:
        return found, problem
    trained: list[FlowCandidate] = []
    seconds: dict[str, float] = {}
    start = clock.spent
    for kind in kinds_for(problem.dim):
        if not clock.decide(f"try flow ({kind})", lambda: clock.spent < start + 0.7 * (deadline - start)):
            continue
        candidate = FlowCandidate(problem, kind)
        seconds[kind] = candidate.probe()
        leg(candidate, clock, FIRST_SHARE * (deadline - start), seconds[kind], say)
        trained.append(candidate)
        if candidate.scored and candidate.scored.per_gradient >= GOOD_ENOUGH:
            break
    if not trained:
        return found, problem
    # The leader goes on for as long as it gains, each leg from a snapshot that is kept if it was better.
    leader = max(trained, key=lambda c: c.scored.per_gradient if c.scored else 0.0)
    while clock.decide("go on", lambda: _worth_going_on(leader, clock, deadline, seconds[leader.kind])):
        before, state = leader.scored, leader.state
        leg(leader, clock, deadline - clock.spent, seconds[leader.kind], say)
        if before and leader.scored and leader.scored.per_gradient < before.per_gradient:
            leader.state, leader.scored = state, before
            break
        if before and leader.scored and leader.scored.per_gradient < GAIN * before.per_gradient:
            break
    clock.ledger.charge("training", sum(c.gradients for c in trained))
    return [*found, *trained], replace(problem, points=leader.points())


def best(found: list[Candidate]) -> float:
    return max((c.scored.per_gradient for c in found if c.scored), default=0.0)


def _worth_going_on(leader: FlowCandidate, clock: Clock, deadline: float, seconds: float) -> bool:
    is_good = leader.scored is not None and leader.scored.per_gradient >= GOOD_ENOUGH
    return not is_good and deadline - clock.spent > LEAST * seconds


def leg(candidate: FlowCandidate, clock: Clock, allowed: float, seconds: float, say: Callable[[str], None]) -> None:
    """As many iterations as the time allows, and a held-out measurement."""
    began = time.perf_counter()
    num = clock.decide(
        f"iterations of {candidate.name}", lambda: int(min(LEG, max(LEAST, 0.85 * allowed / max(seconds, 1e-6))))
    )
    candidate.train(num)
    problem = replace(candidate.problem, points=candidate.points())
    measured = candidate.measure(problem, problem.seed + 2)
    clock.ledger.charge("training", measured.num_gradients)
    say(
        f"{candidate.name}: min_ess per gradient {measured.per_gradient:.3g} after {candidate.iterations} iterations "
        f"({time.perf_counter() - began:.0f} s)"
    )
