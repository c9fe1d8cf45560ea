"""L2HMC transcribed from Levy et al. 2018 (section 3, appendices B and C): slow, literal, one chain.

It shares no line with the library. Only d = +1 is written down: d = -1 is found by solving the forward
equations, because the inverse printed in appendix A is wrong.

`weights` holds "v" and "x", one network each: W1, W2, W3, b, then W4, b4, W5, b5, ... for further layers, the
heads W_s, b_s, W_q, b_q, W_t, b_t, log_lambda_s and log_lambda_q, and W_c where there is a context.
"""

import numpy as np

# Wider than float64 where the machine has it: differences then measure the library's rounding alone.
REAL = np.longdouble


def tau(t, M):
    """Appendix C: the encoding of time."""
    angle = 2 * np.arccos(REAL(-1)) * t / M
    return np.array([np.cos(angle), np.sin(angle)])


def S_Q_T(w, first, second, t, M, context=None):
    """Appendix C: one network at one point."""
    preactivation = w["W1"] @ first + w["W2"] @ second + w["W3"] @ tau(t, M) + w["b"]
    if context is not None:
        preactivation = preactivation + w["W_c"] @ context
    h = np.maximum(preactivation, 0)
    layer = 4
    while f"W{layer}" in w:
        h = np.maximum(w[f"W{layer}"] @ h + w[f"b{layer}"], 0)
        layer += 1
    S = np.exp(w["log_lambda_s"]) * np.tanh(w["W_s"] @ h + w["b_s"])
    Q = np.exp(w["log_lambda_q"]) * np.tanh(w["W_q"] @ h + w["b_q"])
    T = w["W_t"] @ h + w["b_t"]
    return S, Q, T


class Reference:
    """The operator L of section 3.1: masks m, a row for each t, step size eps, the energy U / temperature."""

    def __init__(self, weights, m, eps, U, grad_U, temperature=1.0, context=None):
        self.weights = {net: {name: np.asarray(value, REAL) for name, value in w.items()} for net, w in weights.items()}
        self.m = np.asarray(m, REAL)
        self.M, self.n = self.m.shape
        self.eps = REAL(eps)
        self.U = lambda x: U(x) / REAL(temperature)
        self.g = lambda x: grad_U(x) / REAL(temperature)
        self.context = None if context is None else np.asarray(context, REAL)

    def nets(self, name, first, second, t):
        return S_Q_T(self.weights[name], first, second, t, self.M, self.context)

    def update_v(self, x, v, t):
        """Eqs. 5 and 7, and this update's term of log|J|."""
        eps = self.eps
        g = self.g(x)
        S, Q, T = self.nets("v", x, g, t)
        new = np.zeros(self.n, REAL)
        log_J = REAL(0)
        for i in range(self.n):
            new[i] = v[i] * np.exp(eps / 2 * S[i]) - eps / 2 * (g[i] * np.exp(eps * Q[i]) + T[i])
            log_J += eps / 2 * S[i]
        return new, log_J

    def update_x(self, x, v, m, t):
        """One line of eq. 6: the coordinates where m is 1 move, the network sees the others and v."""
        eps = self.eps
        S, Q, T = self.nets("x", (1 - m) * x, v, t)
        new = np.zeros(self.n, REAL)
        log_J = REAL(0)
        for i in range(self.n):
            moved = x[i] * np.exp(eps * S[i]) + eps * (v[i] * np.exp(eps * Q[i]) + T[i])
            new[i] = (1 - m[i]) * x[i] + m[i] * moved
            log_J += eps * m[i] * S[i]
        return new, log_J

    def forward(self, x, v):
        """d = +1: (x, v) -> (x', v', log|J|), steps t = 0..M-1, log|J| by appendix B."""
        x, v = np.asarray(x, REAL), np.asarray(v, REAL)
        total = REAL(0)
        for t in range(self.M):
            m = self.m[t]
            v, a = self.update_v(x, v, t)
            x, b = self.update_x(x, v, m, t)
            x, c = self.update_x(x, v, 1 - m, t)
            v, d = self.update_v(x, v, t)
            total += a + b + c + d
        return x, v, total

    def backward(self, x, v):
        """d = -1: the (x', v') that forward sends to (x, v), and log|J| of that map."""
        everything = np.ones(self.n, REAL)
        end_x, end_v = np.asarray(x, REAL), np.asarray(v, REAL)
        x, v = end_x, end_v
        for t in reversed(range(self.M)):
            m = self.m[t]
            v = solve(lambda y, x=x, t=t: self.update_v(x, y, t)[0], v, everything)
            x = solve(lambda y, v=v, m=m, t=t: self.update_x(y, v, 1 - m, t)[0], x, 1 - m)
            x = solve(lambda y, v=v, m=m, t=t: self.update_x(y, v, m, t)[0], x, m)
            v = solve(lambda y, x=x, t=t: self.update_v(x, y, t)[0], v, everything)
        back_x, back_v, log_J = self.forward(x, v)
        assert np.allclose(back_x, end_x, rtol=1e-12, atol=1e-12)
        assert np.allclose(back_v, end_v, rtol=1e-12, atol=1e-12)
        return x, v, -log_J

    def propose(self, x, v, d):
        """(x', v', log|J|) of the operator L at (x, v, d)."""
        return self.forward(x, v) if d > 0 else self.backward(x, v)

    def H(self, x, v):
        x, v = np.asarray(x, REAL), np.asarray(v, REAL)
        return self.U(x) + np.sum(v * v) / 2

    def log_A(self, x, v, new_x, new_v, log_J):
        """Eq. 4, in logarithms."""
        return min(REAL(0), self.H(x, v) - self.H(new_x, new_v) + log_J)


def loss(x, new_x, A, scale):
    """The loss of section 3.2 at lambda = scale, with the 1e-4 of the authors' code."""
    delta = np.sum((np.asarray(x, REAL) - new_x) ** 2)
    moved = delta * A + REAL(10) ** -4
    return REAL(scale) ** 2 / moved - moved / REAL(scale) ** 2


def solve(f, target, moves):
    """The y with f(y) = target: f is affine in the coordinates where `moves` is 1, and keeps the others."""
    base = np.where(moves == 1, 0, target)
    intercept = f(base)
    y = np.array(target)
    for i in range(len(target)):
        if moves[i] == 1:
            unit = np.zeros(len(target), REAL)
            unit[i] = 1
            slope = f(base + unit) - intercept
            assert np.all(slope[unit == 0] == 0), "the update couples the coordinates that it moves"
            y[i] = (target[i] - intercept[i]) / slope[i]
    return y
