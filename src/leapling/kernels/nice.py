"""The volume-preserving proposal of A-NICE-MC (Song, Zhao and Ermon 2017): additive couplings of x and v."""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, DTypeLike, Float, PRNGKeyArray

from leapling.energy import Energy
from leapling.kernels.base import MetropolisKernel, Phase, Proposal, evaluate, per_chain, require
from leapling.kernels.mlp import MLP


class NICE(MetropolisKernel):
    """v += m_1(x), x += m_2(v), v += m_3(x), ...; forward for d = +1, the exact inverse for d = -1, then d is flipped.

    No gradient guides it, so that a transition costs one evaluation of the energy, whatever the number of couplings.
    """

    couplings: tuple[MLP, ...]

    def __init__(
        self,
        dim: int,
        num_couplings: int = 3,
        *,
        widths: Sequence[int] = (100,),
        key: PRNGKeyArray,
        dtype: DTypeLike | None = None,
    ):
        """Odd `num_couplings` only: then the first and the last move v, and what moves is the same either way."""
        for name, value in (("dim", dim), *(("each of widths", w) for w in widths)):
            require(value, lambda v: v >= 1, f"{name} must be at least 1")
        require(num_couplings, lambda v: v >= 3 and v % 2 == 1, "num_couplings must be odd and at least 3")
        if not widths:
            raise ValueError("widths needs at least one hidden layer, got none; 100 units are enough in 2 dimensions")
        dtype = jnp.result_type(float) if dtype is None else dtype
        # Untrained, v hardly changes and x moves by a function of v alone: a random walk, whose chains accept.
        self.couplings = tuple(
            MLP((dim, *widths, dim), last_variance=1.0 if i % 2 else 1e-4, key=k, dtype=dtype)
            for i, k in enumerate(jax.random.split(key, num_couplings))
        )

    @property
    def dim(self) -> int:
        return self.couplings[0].layers[0].weight.shape[1]

    @property
    def num_couplings(self) -> int:
        return len(self.couplings)

    @property
    def widths(self) -> tuple[int, ...]:
        return self.couplings[0].widths

    @property
    def dtype(self) -> jnp.dtype:
        return self.couplings[0].layers[0].weight.dtype

    def propose(self, energy: Energy, phase: Phase, *, key) -> Proposal:
        self._check(phase.state.position)
        x, v, is_alive = self.couple(phase.state.position, phase.momentum, phase.direction)
        log_jacobian = jnp.where(is_alive, jnp.zeros_like(phase.state.energy), -jnp.inf)
        moved = Phase(evaluate(energy, x), v, ~phase.direction)
        return Proposal(moved, log_jacobian, jnp.asarray(1, jnp.int32))

    def couple(
        self,
        x: Float[Array, "dim *chains"],
        v: Float[Array, "dim *chains"],
        direction: Bool[Array, "*chains"],
    ) -> tuple[Float[Array, "dim *chains"], Float[Array, "dim *chains"], Bool[Array, "*chains"]]:
        """All couplings in the given direction, no energy; and whether every state on the way was moderate."""
        forward = per_chain(direction, x)
        # As in the learned leapfrog: what overflows stops where it last was moderate and is rejected, and a reversed
        # pass meets the same states. The limit leaves room for squares: a loss takes that of the distance moved.
        limit = jnp.asarray(jnp.finfo(x.dtype).max ** 0.4, x.dtype)

        def is_moderate(x, v):
            return jnp.sum(jnp.abs(x) + jnp.abs(v), axis=0) < limit

        is_alive = is_moderate(x, v)
        for i, (ahead, back) in enumerate(zip(self.couplings, self.couplings[::-1], strict=True)):
            fixed = v if i % 2 else x
            shift = ahead(fixed)
            # The middle one is its own opposite, and evaluated once.
            shift = jnp.where(forward, shift, -(shift if back is ahead else back(fixed)))
            moved = (x + shift, v) if i % 2 else (x, v + shift)
            is_alive = is_alive & is_moderate(*moved)
            x, v = (jnp.where(per_chain(is_alive, x), new, old) for new, old in zip(moved, (x, v), strict=True))
        return x, v, is_alive

    def _check(self, position: Array) -> None:
        if position.shape[0] != self.dim:
            raise ValueError(
                f"this kernel was made for {self.dim} coordinates, got positions of shape {position.shape}; "
                "coordinates are on axis 0, chains behind them"
            )
        if position.dtype != self.dtype:
            raise ValueError(
                f"the kernel is {self.dtype} and the positions are {position.dtype}; mixed precision is refused: "
                f"use leapling.cast(kernel, '{position.dtype}') or convert the positions"
            )
