"""The Lotka-Volterra equations, du/dt = (a - b v) u and dv/dt = (-c + d u) v, by Runge-Kutta steps of fixed length."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

STEPS_PER_INTERVAL = 20


def log_populations(
    rates: Float[Array, "4"],
    initial: Float[Array, "2"],
    durations: Float[Array, " times"],
    steps_per_interval: int = STEPS_PER_INTERVAL,
) -> Float[Array, "times 2"]:
    """(log u, log v) at the end of each interval, from (u, v) = `initial` and `rates` (a, b, c, d).

    In logarithms the populations stay positive, whatever the step. The steps are the same for all parameters: no step
    is chosen by looking at the solution, so that the energy is a smooth function of them, and a scan of a fixed length
    can be differentiated backward twice.
    """
    a, b, c, d = rates

    def slope(w: Float[Array, "2"]) -> Float[Array, "2"]:
        u, v = jnp.exp(w)
        return jnp.stack([a - b * v, -c + d * u])

    def interval(w, duration):
        h = duration / steps_per_interval
        w, _ = jax.lax.scan(lambda w, _: (runge_kutta_4(slope, w, h), None), w, length=steps_per_interval)
        return w, w

    return jax.lax.scan(interval, jnp.log(initial), durations)[1]


def runge_kutta_4(slope, w: Float[Array, " dim"], h: Float[Array, ""]) -> Float[Array, " dim"]:
    k1 = slope(w)
    k2 = slope(w + h / 2 * k1)
    k3 = slope(w + h / 2 * k2)
    k4 = slope(w + h * k3)
    return w + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
