"""An objective beyond the paper's: next states that are not correlated with the present ones."""

from collections.abc import Sequence
from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from leapling.kernels import Info, State
from leapling.training.transitions import moves

FORMS = ("square", "log", "matrix")


@dataclass(frozen=True)
class Decorrelation:
    """Of the statistics f_k in {y_i, y_i^2, U}, y the centred coordinates, the autocorrelation after one transition.

    Under stationarity it is rho_k = 1 - j_k, j_k = E[A (f_k' - f_k)^2] / (2 Var f_k). With `form`

    - "square": the mean of rho_k^2, so that neither resting (rho = 1) nor flipping (rho = -1) pays;
    - "log": the mean of -log(min(j_k, 1) + j_k / 100), steep where a statistic hardly moves;
    - "matrix": the mean over k of the sum over l of C_kl^2, C the correlation of f_k now with f_l next: a rotation
      x1 -> x2 -> -x1 has rho = 0 for every statistic and comes back after two steps, which the other entries show.

    Moments are those of the batch, and no gradient goes through them; a jump counts for at most `cap` variances, so
    that one wild proposal does not decide.
    """

    form: str = "square"
    cap: float = 50.0

    def __post_init__(self):
        if self.form not in FORMS:
            raise ValueError(f"there is no form {self.form!r}; choose from {', '.join(FORMS)}")
        if not self.cap > 0:
            raise ValueError(f"cap must be above 0, got {self.cap}")

    def __call__(self, start: State, info: Info) -> Float[Array, ""]:
        ways = moves(start, info)
        now, *afters = standardised(start, [state for _, state in ways])
        rates = [share[None] for share, _ in ways]
        if self.form == "matrix":
            # E[f_k (f_l' - f_l)] weighted by A, plus what resting leaves: the correlation of the batch with itself.
            after = now
            for rate, there in zip(rates, afters, strict=True):
                after = rate * jnp.clip(there - now, -(self.cap**0.5), self.cap**0.5) + after
            correlation = jnp.tensordot(now, after.T, 1) / now.shape[1]
            return jnp.mean(jnp.sum(correlation**2, axis=1))
        jumps = [jnp.minimum((there - now) ** 2, self.cap) for there in afters]
        jump = sum(jnp.mean(rate * jump, axis=1) for rate, jump in zip(rates, jumps, strict=True)) / 2
        if self.form == "log":
            return -jnp.mean(jnp.log(jnp.minimum(jump, 1) + 0.01 * jump))
        return jnp.mean((1 - jump) ** 2)


def standardised(start: State, ends: Sequence[State]) -> list[Float[Array, "statistics chains"]]:
    """Every statistic of the start and of each end, with mean 0 and variance 1 over the present ones."""
    centre = jax.lax.stop_gradient(jnp.mean(start.position, axis=1, keepdims=True))

    def statistics(state: State) -> Array:
        y = state.position - centre
        return jnp.concatenate([y, y**2, state.energy[None]])

    now = statistics(start)
    mean = jax.lax.stop_gradient(jnp.mean(now, axis=1, keepdims=True))
    variance = jax.lax.stop_gradient(jnp.var(now, axis=1, keepdims=True))
    scale = jnp.sqrt(jnp.maximum(variance, jnp.finfo(now.dtype).tiny))
    afters = [statistics(state) for state in ends]
    afters = [jnp.where(jnp.isfinite(after), after, now) for after in afters]  # a square may overflow
    return [(each - mean) / scale for each in (now, *afters)]
