"""Palindromic splittings of the Hamiltonian flow, by their coefficients."""

from typing import NamedTuple


class Splitting(NamedTuple):
    """Kicks v -= a eps g and drifts x += b eps v in turn, kicks first and last; one gradient for each drift.

    Each list sums to 1 and reads the same backward: the map is symplectic and of order two, and run with v negated it
    is its own inverse. `eps` is that of the whole step.
    """

    kicks: tuple[float, ...]
    drifts: tuple[float, ...]

    @property
    def num_gradients(self) -> int:
        return len(self.drifts)


def two_stage(b: float) -> Splitting:
    return Splitting((b, 1 - 2 * b, b), (0.5, 0.5))


def three_stage(a: float, b: float) -> Splitting:
    return Splitting((b, 0.5 - b, 0.5 - b, b), (a, 1 - 2 * a, a))


# McLachlan (1995) makes the error of short steps small. Blanes, Casas and Sanz-Serna (2014) take, from the same
# families, the map whose expected energy error on Gaussians is smallest at the worst step of up to as many sd as it has
# stages. For the same gradients per time, leapfrog is there at half of its limit of stability.
INTEGRATORS = {
    "leapfrog": Splitting((0.5, 0.5), (1.0,)),
    "mclachlan": two_stage(0.1931833275037836),
    "two-stage": two_stage(0.21178098),
    "three-stage": three_stage(0.29619504261126, 0.11888010966548),
}
