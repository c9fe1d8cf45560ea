"""The law of invariance: the rank test on exact draws of the target, or of a stand-in for it."""

from collections.abc import Callable

from leapling.diagnostics.exactness.product import GaussianProduct
from leapling.diagnostics.exactness.rank import NUM_STATES, RankTest, rank_test
from leapling.diagnostics.exactness.report import Law
from leapling.diagnostics.exactness.scale import USEFUL_ACCEPTANCE
from leapling.diagnostics.exactness.standin import fit_standin
from leapling.diagnostics.exactness.subject import Sampler, Subject
from leapling.targets import Target


def invariance_law(subject: Subject, num_chains: int) -> Law:
    function: Callable = subject.function
    sampler: Sampler | None = subject.sampler
    prefix = ""
    if sampler is None:
        fit: Callable[..., Target | GaussianProduct] = getattr(subject.kernel, "fit_standin", fit_standin)
        standin = fit(subject.probes.T, subject.random("stand-in"))
        function, sampler = standin, standin.sample
        prefix = "on a mixture fitted to the probe points: "
    plain, scaled = rank_test(subject, function, sampler, num_chains)
    test = scaled or plain
    low, high = USEFUL_ACCEPTANCE
    text = prefix + _describe(test, num_chains)
    if scaled is not None:
        text += f" scaled by {scaled.scale:.3g}, {plain.acceptance:.3f} at full size"
    status = "passed" if scaled is None and not prefix else "on a stand-in"
    if test.outcome.is_rejected:
        status = "failed"
    elif not low <= test.acceptance <= high:
        status = "void"
        text += f", outside of {low} to {high} at every size of the target: a wrong kernel would pass"
    return Law("invariance", status, test.outcome.p_value, test.outcome.threshold, text)


def _describe(test: RankTest, num_chains: int) -> str:
    outcome, num_statistics = test.outcome, len(test.statistics)
    rounds = "1 round" if outcome.num_rounds == 1 else f"{outcome.num_rounds} rounds"
    return (
        f"p-value, to stay above, of the rank of an exact draw among {NUM_STATES} states; "
        f"{num_statistics} statistics, worst {test.statistics[outcome.worst]}, "
        f"{num_chains * test.num_batches} chains in {rounds}, acceptance {test.acceptance:.3f}"
    )
