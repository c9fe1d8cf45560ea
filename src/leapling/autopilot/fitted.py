"""What `fit` returns: an exact sampler with its verdict; it draws, it is saved, and it is loaded again."""

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import equinox as eqx
import numpy as np
from jaxtyping import Array, Float

from leapling.arrays import pack, unpack
from leapling.autopilot.measure import draw
from leapling.autopilot.verdict import Verdict
from leapling.chains import Draws
from leapling.checks import check_energy
from leapling.coordinates import Coordinates
from leapling.files import RunError, atomic_path, make_folder
from leapling.interop import to_arviz
from leapling.kernels import InCoordinates, Kernel
from leapling.store import fingerprint, load_run, read_header, same_target, save_run
from leapling.targets import TARGETS, resolve

STARTS = "starts.npz"


class Bare(eqx.Module):
    """An energy and nothing else: a fit may use no moment and no draw of a target that knows them."""

    function: Callable

    def __call__(self, x: Float[Array, " dim"]) -> Float[Array, ""]:
        return self.function(x)


@dataclass(frozen=True)
class Fitted:
    """`kernel` moves z, `coordinates` say what x is; `path` is every decision the clock made, for a replay."""

    kernel: Kernel
    coordinates: Coordinates
    energy: Callable
    verdict: Verdict
    starts: Float[np.ndarray, "dim points"]
    path: list
    seed: int
    baselines: dict[str, tuple[Kernel, Coordinates]] = field(default_factory=dict)  # the tuned HMCs; not saved

    @property
    def in_x(self) -> Kernel:
        """The same sampler as a kernel on the energy of x."""
        return InCoordinates(self.kernel, self.coordinates)  # pyright: ignore[reportArgumentType]

    def draw(
        self,
        num_chains: int = 64,
        num_draws: int = 1000,
        *,
        seed: int = 0,
        initial_positions: Float[np.ndarray, "chain dim"] | None = None,
        **options: Any,
    ) -> Draws:
        """Chains, started where warm-up and training ended or from `initial_positions`; told in x."""
        if initial_positions is None:
            random = np.random.default_rng([seed, 1])
            initial_positions = self.starts.T[random.integers(self.starts.shape[1], size=num_chains)]
        return draw(
            self.kernel,
            self.coordinates,
            Bare(self.energy),
            positions=np.asarray(initial_positions, self.starts.dtype),
            num_draws=num_draws,
            seed=seed,
            **options,
        )

    def sample(self, num_chains: int = 64, num_draws: int = 1000, *, seed: int = 0, **options: Any) -> Any:
        """As `draw`, for ArviZ."""
        return to_arviz(self.draw(num_chains, num_draws, seed=seed, **options))

    def save(self, folder: str | os.PathLike, target: str | None = None) -> None:
        """`target` is the name to find the energy by again, one of the built-in targets'."""
        folder = make_folder(folder)
        dim = self.coordinates.dim
        with atomic_path(folder / STARTS) as temporary:
            temporary.write_bytes(pack({"starts": self.starts}))
        save_run(
            folder,
            self.in_x,
            settings={
                "target": target or getattr(self.energy, "name", None) or "",
                "fingerprint": fingerprint(self.energy, dim),
                "seed": self.seed,
            },
            fit={"verdict": self.verdict.to_dict(), "path": self.path},
        )
        (folder / "verdict.md").write_text(f"{self.verdict}\n")


def load(folder: str | os.PathLike, energy: Callable | None = None) -> Fitted:
    """A saved fit. An energy of one's own is given again; that of a built-in target is found by its name."""
    folder = Path(folder)
    header = read_header(folder)
    name = header["settings"]["target"]
    if energy is None:
        if name not in TARGETS:
            raise RunError(f"{folder} is a fit to an energy of your own: give it again, leapling.load(folder, energy)")
        energy = resolve(name)
    dim = header["settings"]["fingerprint"]["dim"]
    check_energy(energy, dim)
    same_target(header["settings"]["fingerprint"], energy, dim)
    return _read(folder, energy)


def _read(folder: Path, energy: Callable) -> Fitted:
    kernel, header = load_run(folder)
    if "fit" not in header or not isinstance(kernel, InCoordinates):
        raise RunError(f"{folder} holds a run of `leapling train`, not of `leapling fit`; use load_run for it")
    path = folder / STARTS
    if not path.is_file():
        raise RunError(f"{path} is missing; restore a copy, or fit again")
    starts = unpack(path.read_bytes(), path)["starts"]
    fit = header["fit"]
    return Fitted(
        kernel.kernel,
        kernel.coordinates,
        energy,
        Verdict(**fit["verdict"]),
        starts,
        fit["path"],
        header["settings"]["seed"],
    )


def neighbour(folder: str | os.PathLike) -> Fitted:
    """A saved fit to another target, for `start_from`: its sampler, with an energy that must not be used."""

    def elsewhere(x):
        raise RunError("this fit was loaded without its energy, as a start for another; use leapling.load to sample it")

    return _read(Path(folder), elsewhere)


def read_path(folder: str | os.PathLike) -> list:
    """The decisions of a saved fit, for `fit(..., path=...)`."""
    return read_header(folder)["fit"]["path"]
