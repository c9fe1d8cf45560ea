"""The autocorrelation curve of Levy et al. 2018, appendix C.2, for draws of shape (chain, draw, dim)."""

import numpy as np
from jaxtyping import Float

# Numbers held at once by one block of Fourier transforms: 2^21 complex ones are 32 MiB.
BLOCK_SIZE = 2**21


def autocorrelation(
    draws: Float[np.ndarray, "chain draw dim"],
    *,
    mean: Float[np.ndarray, "dim"] | None = None,
    variance: Float[np.ndarray, "dim"] | None = None,
    max_lag: int | None = None,
) -> Float[np.ndarray, "lags"]:
    """rho_t for t = 0 ... max_lag (default: the number of draws - 1), averaged over chains:

        rho_t = 1 / (Trace(Sigma) (T - t)) sum_{tau < T - t} (x_tau - mu)^T (x_{tau+t} - mu)

    `mean` is mu and `variance` the diagonal of Sigma, the true ones where they are known; what is not given
    is estimated from all draws of all chains, the variance about the mean in use. Draws that all sit at the
    mean have rho_t = 1 at every lag: they are perfectly correlated.

    Coordinates are weighted by their variance, so the curve hardly sees a narrow one.
    """
    require_finite("draws", draws)
    num_chains, num_draws, dim = draws.shape
    for name, moment in (("mean", mean), ("variance", variance)):
        if moment is not None and np.shape(moment) != (dim,):
            raise ValueError(
                f"{name} has shape {np.shape(moment)} but the draws have {dim} coordinates: "
                f"give one value per coordinate, shape ({dim},)."
            )
    num_lags = num_draws if max_lag is None else max_lag + 1
    if not 1 <= num_lags <= num_draws:
        raise ValueError(
            f"max_lag is {max_lag} but the chains have {num_draws} draws: "
            f"choose a lag from 0 to {num_draws - 1}, or None for all of them."
        )

    products = np.zeros(num_lags)
    trace = 0.0 if variance is None else float(np.sum(variance))
    for i in range(dim):
        column = np.asarray(draws[:, :, i], np.float64)
        column = column - (column.mean() if mean is None else mean[i])
        products += lagged_products(column, num_lags)
        if variance is None:
            trace += float(np.mean(column**2))
    if trace == 0.0 and variance is None:
        return np.ones(num_lags)
    if not (trace > 0.0 and np.isfinite(trace)):
        raise ValueError(f"The variances sum to {trace}: give each coordinate's own, positive and finite.")
    return products / (num_chains * trace * (num_draws - np.arange(num_lags)))


def lagged_products(series: Float[np.ndarray, "series draw"], num_lags: int) -> Float[np.ndarray, "lags"]:
    """sum over series and tau of y_tau y_{tau+t}, for t = 0 ... num_lags - 1.

    The power spectra are summed before the one inverse transform: the series need not come back apart.
    """
    num_series, num_draws = series.shape
    # Zeros behind the series keep its end from wrapping round onto its beginning.
    length = 1 << (num_draws + num_lags - 2).bit_length()
    block = max(1, BLOCK_SIZE // length)
    power = np.zeros(length // 2 + 1)
    for start in range(0, num_series, block):
        spectrum = np.fft.rfft(series[start : start + block], length)
        power += np.sum(spectrum.real**2 + spectrum.imag**2, axis=0)
    return np.fft.irfft(power, length)[:num_lags]


def require_finite(name: str, values: Float[np.ndarray, "chain draw *statistic"]) -> None:
    """Refuse NaN and infinity, saying how many there are and where the first one is."""
    finite = np.isfinite(values)
    if finite.all():
        return
    bad = np.argwhere(~finite)
    where = ", ".join(f"{axis} {i}" for axis, i in zip(("chain", "draw", "coordinate"), bad[0], strict=False))
    raise ValueError(
        f"{len(bad)} of the {values.size} values of {name} are not finite, the first at {where}: every value "
        "must be finite, so check the energy there, start the chains elsewhere or try a smaller step size."
    )
