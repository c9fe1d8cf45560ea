"""L2HMC: Hamiltonian Monte Carlo whose leapfrog step is a pair of trained networks (Levy et al. 2018)."""

from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Bool, DTypeLike, Float, PRNGKeyArray

from leapling.energy import Energy
from leapling.kernels.base import MetropolisKernel, Phase, Proposal, per_coordinate, require
from leapling.kernels.leapfrog import Step, run_leapfrog
from leapling.kernels.networks import Network


class L2HMC(MetropolisKernel):
    """The paper's kernel: M learned leapfrog steps, the direction flipped, and a Metropolis-Hastings step.

    Masks are Bool: as floats the optimiser would train them, and the sampler would be silently biased.
    """

    v_network: Network
    x_network: Network
    log_step_size: Float[Array, ""]
    masks: Bool[Array, "steps dim"]
    context: Float[Array, "context *chains"] | None

    def __init__(
        self,
        dim: int,
        num_steps: int = 10,
        *,
        widths: Sequence[int] = (10, 10),
        step_size: ArrayLike = 0.1,
        context_dim: int = 0,
        heads: str = "SQT",
        skip: bool = False,
        key: PRNGKeyArray,
        dtype: DTypeLike | None = None,
    ):
        """`heads` names which of S, Q and T are used; the others are zero, and "" is HMC with two directions.

        `skip` adds a linear path from each coordinate to its own S, Q and T, zero at first (see `kernels/starts.py`).
        """
        for name, value in (("dim", dim), ("num_steps", num_steps), *(("each of widths", w) for w in widths)):
            if value < 1:
                raise ValueError(f"{name} must be at least 1, got {value}")
        if not widths:
            raise ValueError("widths needs at least one hidden layer, got none; the paper uses (10, 10)")
        require(step_size, lambda v: v > 0, "step_size must be a finite number above 0")
        if not set(heads) <= set("SQT"):
            raise ValueError(f"heads must be some of the letters S, Q and T, got {heads!r}")
        dtype = jnp.result_type(float) if dtype is None else dtype
        shape = {"context_dim": context_dim, "used": heads, "skip": skip, "dtype": dtype}
        key_v, key_x, key_masks = jax.random.split(key, 3)
        self.v_network = Network(dim, widths, key=key_v, **shape)
        self.x_network = Network(dim, widths, first_factor=2.0, key=key_x, **shape)
        self.log_step_size = jnp.log(jnp.asarray(step_size, dtype))
        self.context = None
        # m^t: floor(dim / 2) ones, placed uniformly. With one coordinate it is empty: x moves in the second half.
        half = jnp.arange(dim) < dim // 2
        self.masks = jax.vmap(lambda k: jax.random.permutation(k, half))(jax.random.split(key_masks, num_steps))

    @property
    def dim(self) -> int:
        return self.masks.shape[1]

    @property
    def num_steps(self) -> int:
        return self.masks.shape[0]

    @property
    def widths(self) -> tuple[int, ...]:
        network = self.v_network
        return (network.bias.shape[0], *(layer.bias.shape[0] for layer in network.hidden))

    @property
    def context_dim(self) -> int:
        return 0 if self.v_network.context is None else self.v_network.context.shape[1]

    @property
    def skip(self) -> bool:
        return self.v_network.skip is not None

    @property
    def heads(self) -> str:
        return self.v_network.used

    @property
    def step_size(self) -> Float[Array, ""]:
        return jnp.exp(self.log_step_size)

    @property
    def taus(self) -> Float[Array, "steps 2"]:
        """tau(t) = (cos 2 pi t/M, sin 2 pi t/M)."""
        angle = 2 * np.pi * np.arange(self.num_steps) / self.num_steps
        return jnp.asarray(np.stack([np.cos(angle), np.sin(angle)], axis=1), self.log_step_size.dtype)

    def given(self, context: Float[Array, "context *chains"]) -> "L2HMC":
        """The same kernel with its context bound, one for all chains or one per chain: an ordinary kernel."""
        if self.context_dim == 0 or context.shape[0] != self.context_dim:
            raise ValueError(
                f"this kernel takes a context of size {self.context_dim}, got one of shape {context.shape}; "
                "set context_dim when the kernel is made"
            )
        return eqx.tree_at(lambda k: k.context, self, context, is_leaf=lambda leaf: leaf is None)

    def flip(self, phase: Phase) -> Phase:
        """The operator F."""
        return Phase(phase.state, phase.momentum, ~phase.direction)

    def propose(self, energy: Energy, phase: Phase, *, key) -> Proposal:
        self._check(phase.state.position)
        phase, log_jacobian = run_leapfrog(
            energy,
            phase,
            v_network=self.v_network,
            x_network=self.x_network,
            eps=self.step_size,
            steps=Step(self.masks, self.v_network.offsets(self.taus), self.x_network.offsets(self.taus)),
            context=(self._context_term(self.v_network, phase), self._context_term(self.x_network, phase)),
        )
        return Proposal(self.flip(phase), log_jacobian, jnp.asarray(self.num_steps, jnp.int32))

    def _context_term(self, network: Network, phase: Phase) -> Array:
        if network.context is None:
            return jnp.zeros((1,) * phase.momentum.ndim, phase.momentum.dtype)
        if self.context is None:
            raise ValueError(
                f"this kernel takes a context of size {self.context_dim} and has none; "
                "bind one with kernel.given(context)"
            )
        term = jnp.tensordot(network.context, self.context, 1)
        return term if term.ndim == phase.momentum.ndim else per_coordinate(term, phase.momentum)

    def _check(self, position: Array) -> None:
        if position.shape[0] != self.dim:
            raise ValueError(
                f"this kernel was made for {self.dim} coordinates, got positions of shape {position.shape}; "
                "coordinates are on axis 0, chains behind them"
            )
        if position.dtype != self.log_step_size.dtype:
            raise ValueError(
                f"the kernel is {self.log_step_size.dtype} and the positions are {position.dtype}; mixed precision "
                f"is refused: use leapling.cast(kernel, '{position.dtype}') or convert the positions"
            )
