"""Candidates that straighten the target with a trained flow, and then move by the Gaussian optimum."""

import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from leapling.autopilot.candidates import START_WIDTH, Candidate, Problem
from leapling.coordinates import Coordinates, whitened_by
from leapling.coordinates.flow import Flow
from leapling.kernels.starts import without_force
from leapling.training.flow import BATCH, begin_flow, train_flow

FEW_LAYERS, MANY_LAYERS, WIDTH = 8, 12, 32
FEW_DIMS = 8
PROBE = 50  # iterations that tell how long one takes
REVERSE = {"affine": 0.3, "spline": 0.0}  # weight of the reverse divergence, which one mode alone may have
MAX_SPLINE_DIM, MAX_FLOW_DIM = 32, 128


class FlowCandidate(Candidate):
    """A flow of one kind over affine coordinates, trained on chains that it helps to move."""

    def __init__(self, problem: Problem, kind: str, shape: str = "dense"):
        self.problem, self.kind = problem, kind
        self.name = f"flow ({kind}) over {shape}"
        # Affine layers are cheap, and there have to be enough of them for every coordinate to meet every other.
        layers = MANY_LAYERS if kind == "affine" and problem.dim > FEW_DIMS else FEW_LAYERS
        outer: Coordinates = whitened_by(problem.points.T, shape)
        flow = Flow(
            outer,
            kind,
            num_layers=layers,
            width=WIDTH,
            key=jax.random.key(problem.seed),
        )
        points = problem.points[:, np.arange(-(-problem.points.shape[1] // BATCH) * BATCH) % problem.points.shape[1]]
        self.state = begin_flow(flow, problem.energy, jnp.asarray(points), seed=problem.seed)
        self.kernel = without_force(problem.dim, widths=START_WIDTH, key=jax.random.key(problem.seed))

    @property
    def coordinates(self) -> Flow:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.state.flow

    @property
    def gradients(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        return int(self.state.gradients)

    @property
    def iterations(self) -> int:
        return int(self.state.iteration)

    def probe(self) -> float:
        """Compile, and the seconds of one iteration after that."""
        self.train(1)
        began = time.perf_counter()
        self.train(PROBE)
        return (time.perf_counter() - began) / PROBE

    def train(self, num: int | Callable[[int], int]) -> None:
        """One more fall of the learning rate, over `num` iterations."""
        self.state = train_flow(
            self.problem.energy, self.problem.local, self.state, num, reverse_weight=REVERSE[self.kind]
        )
        jax.block_until_ready(self.state.iteration)

    def points(self) -> np.ndarray:
        """Where its chains are: better spread than what they started from."""
        return np.asarray(self.state.chains.position)

    def row(self) -> dict[str, Any]:
        return {"recipe": self.name, "coordinates": f"flow ({self.kind})", "M": 1, "iterations": self.iterations}


def kinds_for(dim: int) -> list[str]:
    if dim < 2 or dim > MAX_FLOW_DIM:
        return []
    return ["affine", "spline"] if dim <= MAX_SPLINE_DIM else ["affine"]
