"""``python -m benchmarks.references``: log evidences of problems without an exact value.

Importance sampling with many draws from a proposal that covers the posterior. The estimate of Z is
unbiased for every proposal, and the weights give its error.

Softmax regression has one mode: the proposal is a Student t at the mode, with the curvature there.
The mixture has 3! equal modes. Its proposal is a Student t with the mean and covariance of
posterior draws of SMC, relabelled to one order, in log ratios of the weights, log variances and
means. The proposal's density is the mean over all orders, so the order of a draw does not matter. A
tenth of the draws come from a t that is three times as wide, so that tails and smaller modes are
not missed. SMC's own estimate is printed too.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from scipy import optimize, special

import weighbridge as wb
from benchmarks import problems

NUM_DRAWS = 400_000
DEGREES = 8.0


def student(generator: np.random.Generator, count: int, centre: np.ndarray, factor: np.ndarray):
    """Draws of a multivariate t, given the Cholesky factor of its scale matrix."""
    normal = generator.standard_normal((count, len(factor)))
    shrink = np.sqrt(DEGREES / generator.chisquare(DEGREES, count))
    return centre + shrink[:, None] * (normal @ factor.T)


def student_log_density(x: np.ndarray, centre: np.ndarray, factor: np.ndarray) -> np.ndarray:
    """Log density of the multivariate t."""
    size = len(factor)
    squares = np.sum(np.linalg.solve(factor, (x - centre).T) ** 2, axis=0)
    constant = special.gammaln((DEGREES + size) / 2) - special.gammaln(DEGREES / 2)
    constant -= 0.5 * size * math.log(DEGREES * math.pi) + np.sum(np.log(np.diag(factor)))
    return np.asarray(constant - 0.5 * (DEGREES + size) * np.log1p(squares / DEGREES))


def estimate(log_joint: Callable[[np.ndarray], np.ndarray], x: np.ndarray, log_q: np.ndarray):
    """Log of the mean weight, its standard error, and the effective number of draws."""
    log_weight = log_joint(x) - log_q
    weight = np.exp(log_weight - log_weight.max())
    log_z = log_weight.max() + math.log(weight.mean())
    error = weight.std() / (weight.mean() * math.sqrt(len(weight)))
    return log_z, error, weight.sum() ** 2 / np.sum(weight**2)


def batched(log_density: Callable[[jax.Array], jax.Array]) -> Callable[[np.ndarray], np.ndarray]:
    """The log density at many points, a thousand at a time."""
    of_all = jax.jit(jax.vmap(log_density))
    return lambda x: np.concatenate([np.asarray(of_all(b)) for b in np.split(x, len(x) // 1_000)])


def softmax() -> None:
    """One Student t at the mode."""
    data = problems.softmax().data

    def log_joint(x: jax.Array) -> jax.Array:
        table = x.reshape(4, 11)
        scores = data["x"] @ table[:, :-1].T + table[:, -1]
        chosen = jax.nn.log_softmax(scores)[jnp.arange(len(data["y"])), data["y"]]
        return jnp.sum(dist.Normal(0.0, 1.0).log_prob(x)) + jnp.sum(chosen)

    found = optimize.minimize(
        lambda x: -log_joint(x), np.zeros(44), jac=jax.jit(jax.grad(lambda x: -log_joint(x)))
    )
    precision = -np.asarray(jax.hessian(log_joint)(jnp.asarray(found.x)))
    factor = np.linalg.cholesky(np.linalg.inv(precision))
    x = student(np.random.default_rng(0), NUM_DRAWS, found.x, factor)
    print("softmax", *estimate(batched(log_joint), x, student_log_density(x, found.x, factor)))


def mixture() -> None:
    """Student t's fitted to posterior draws, averaged over the orders of the components."""
    problem = problems.mixture()
    result = wb.evidence(problem.model, problem.data, wb.SMC(), seed=0, progress=False)
    print("SMC:", result)
    draws = result.resample(1_000)
    order = np.argsort(draws["mu"][:, :, 0], axis=1)
    logits, variances, means = (
        np.take_along_axis(part, order, axis=1)
        for part in (np.log(draws["weights"]), draws["s2"][:, :, 0], draws["mu"][:, :, 0])
    )
    points = np.concatenate([logits[:, :2] - logits[:, 2:], np.log(variances), means], axis=1)
    centre, factor = points.mean(axis=0), np.linalg.cholesky(np.cov(points.T))
    generator = np.random.default_rng(0)
    proposals = [(0.9, factor), (0.1, 3 * factor)]
    x = np.concatenate(
        [student(generator, round(share * NUM_DRAWS), centre, wide) for share, wide in proposals]
    )
    log_q = [
        math.log(share / 6) + student_log_density(relabel(x, order), centre, wide)
        for order in itertools.permutations(range(3))
        for share, wide in proposals
    ]

    def log_joint(x: jax.Array) -> jax.Array:
        log_weight = jax.nn.log_softmax(jnp.append(x[:2], 0.0))
        log_variance, mean = x[2:5], x[5:]
        scale = jnp.exp(0.5 * log_variance)
        # Dirichlet(1) and InverseGamma(1, 1), each with the Jacobian of its logs.
        prior = math.log(2) + jnp.sum(log_weight - log_variance - jnp.exp(-log_variance))
        prior += jnp.sum(dist.Normal(0.0, 2 * scale).log_prob(mean))
        each = log_weight + dist.Normal(mean, scale).log_prob(problem.data)
        return prior + jnp.sum(jax.nn.logsumexp(each, axis=1))

    print("mixture", *estimate(batched(log_joint), x, special.logsumexp(log_q, axis=0)))


def relabel(x: np.ndarray, order: tuple[int, ...]) -> np.ndarray:
    """The same points with the components in another order; the map preserves volumes."""
    logits = np.concatenate([x[:, :2], np.zeros((len(x), 1))], axis=1)[:, order]
    return np.concatenate(
        [logits[:, :2] - logits[:, 2:], x[:, 2:5][:, order], x[:, 5:][:, order]], axis=1
    )


if __name__ == "__main__":
    with jax.enable_x64(True):
        softmax()
        mixture()
