"""The baselines: what makes each one's kernel, and which of its settings are searched."""

from collections.abc import Callable, Sequence
from functools import partial

from leapling.coordinates import Affine, whitening
from leapling.kernels import HMC, LAHMC, InCoordinates, Kernel
from leapling.targets import Target
from leapling.tuning import LAHMC_AXES

# The paper's HMC: M of its LAHMC table (gradients / transitions), the step sizes of the authors' code.
PAPER_STEPS = 10
AUTHORS_STEP_SIZES = (0.1, 0.15, 0.2)
# K and beta of the published code of LAHMC's authors. Their eps, 1, fits their targets; here it is searched for each
# target (rows "LAHMC M=10"), or everything is (rows "LAHMC").
LAHMC_AUTHORS = {"num_trajectories": 4, "refreshment": 0.1}


def baseline(method: str, energy: Target, same_steps: int) -> tuple[Callable[..., Kernel], dict[str, Sequence]]:
    """A function of settings that makes the method's kernel, and the part of `tune`'s grid that is not its default.

    `same_steps` is the M of the learned kernel beside it.
    """
    paper_length = {"num_steps": [PAPER_STEPS], "length_jitter": [0.0]}
    if method == "HMC same M":
        return HMC, {**paper_length, "num_steps": [same_steps]}
    if method == "HMC M=10":
        return HMC, paper_length
    if method == "HMC M=10, authors' steps":
        return HMC, {**paper_length, "step_size": AUTHORS_STEP_SIZES}
    if method == "HMC tuned":
        return HMC, {}
    if method == "HMC whitened":
        return partial(_whitened, whitening(energy.mean, energy.covariance)), {"length_jitter": [0.0, 0.5]}
    if method == "LAHMC M=10":
        return LAHMC.over_hmc, {"num_steps": [PAPER_STEPS], **{name: [value] for name, value in LAHMC_AUTHORS.items()}}
    if method == "LAHMC":
        return LAHMC.over_hmc, LAHMC_AXES
    raise ValueError(f"there is no baseline {method!r}")


def _whitened(coordinates: Affine, **settings) -> Kernel:
    return InCoordinates(HMC(**settings), coordinates)
