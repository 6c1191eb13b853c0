"""The next term of Laplace's expansion, from third and fourth derivatives along random lines."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from weighbridge.estimators.laplace.modes import Modes
from weighbridge.estimators.proposals.joint_density import JointDensity

# The step along a line, in standard deviations, and the modes that are looked at: those with the
# largest masses.
STEP, MOST_MODES = 0.1, 8
# Points on a line, in steps, and the weights of the values there in the third and the fourth
# derivative; values are relative to that at the mode.
POINTS = np.array([-2.0, -1.0, 1.0, 2.0])
THIRD = np.array([-0.5, 1.0, -1.0, 0.5])
FOURTH = np.array([1.0, -4.0, -4.0, 1.0])


class NextOrder(NamedTuple):
    """The next term of the log evidence, in nats, and its standard error over random lines."""

    correction: float
    std_error: float


def next_order(
    density: JointDensity, modes: Modes, numbers: np.random.Generator, num_lines: int
) -> NextOrder:
    r"""The term of order 1/n by which Laplace's method is off, where its expansion converges.

    .. math:: \log Z - \log Z_L \approx
              \frac{1}{8} h_{ijkl} C_{ij} C_{kl} + \frac18 h_{ijk} h_{lmn} C_{ij} C_{kl} C_{mn}
              + \frac{1}{12} h_{ijk} h_{lmn} C_{il} C_{jm} C_{kn}
              = E_z \Bigl[ \frac{T_4(z)}{24} + \frac{T_3(z)^2}{72} \Bigr]

    where T_3 and T_4 are the third and fourth derivatives of log f along z ~ N(0, C). The sums over
    indices on the left take D^4 derivatives; the mean over lines on the right takes a few hundred
    differences for any D. Tierney & Kadane (1986), J. American Statistical Association 81:82-86;
    Shun & McCullagh (1995), J. Royal Statistical Society B 57:749-760.

    Args:
        density: the unnormalised log posterior.
        modes: its modes, in unconstrained coordinates.
        numbers: random numbers.
        num_lines: number of lines, shared by the modes.

    For a gamma distribution in the logarithm the series is that of Stirling, 1 / (12 n):

    >>> import numpyro.distributions as dist
    >>> from weighbridge.core.compilation import in_double_precision
    >>> from weighbridge.estimators.laplace.modes import find_modes
    >>> from weighbridge.models.model import Model
    >>> model = Model({"s": dist.Gamma(9.0, 1.0)}, total_log_likelihood=lambda p: 0.0 * p["s"])
    >>> with in_double_precision():
    ...     density = JointDensity(model, None, None)
    ...     modes = find_modes(density, num_starts=4)
    ...     found = next_order(density, modes, np.random.default_rng(0), 2000)
    >>> abs(found.correction - 1 / (12 * 9)) < 4 * found.std_error
    True
    """
    log_mass = modes.log_mass
    corrections, variances = [], []
    chosen = np.argsort(-log_mass, kind="stable")[:MOST_MODES]
    count = max(num_lines // len(chosen), 16)
    for number in chosen:
        noise = numbers.standard_normal((count, density.model.dimension))
        lines = noise @ modes.root[number].T
        points = modes.position[number] + STEP * POINTS[:, None, None] * lines
        heights = density(points.reshape(-1, lines.shape[1])).reshape(len(POINTS), -1)
        heights = heights - modes.log_density[number]
        with np.errstate(invalid="ignore"):  # beyond the support the density is zero
            third, fourth = THIRD @ heights / STEP**3, FOURTH @ heights / STEP**4
        terms = fourth / 24.0 + third**2 / 72.0
        corrections.append(float(np.mean(terms)))
        variances.append(float(np.var(terms, ddof=1)) / count)
    share = np.exp(log_mass[chosen] - np.logaddexp.reduce(log_mass[chosen]))
    correction = float(share @ corrections)
    return NextOrder(correction, float(np.sqrt(share**2 @ variances)))
