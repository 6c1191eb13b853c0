"""Linear regression with known noise: exact draws, evidences and Savage-Dickey ratios."""

import numpy as np
import numpyro.distributions as dist
from scipy.stats import multivariate_normal

import weighbridge as wb

ROWS, COLUMNS = 60, 3


def regression(deviations, seed):
    """Rows whose last coefficient is about so many posterior deviations from zero."""
    generator = np.random.default_rng(seed)
    x = generator.normal(size=(ROWS, COLUMNS))
    x[:, 2] += 0.5 * x[:, 0]
    coefficients = np.array([0.5, -0.5, deviations / np.sqrt(ROWS)])
    return {"x": x, "y": x @ coefficients + 0.3 + generator.normal(size=ROWS)}


def _log_likelihood(p, row):
    return dist.Normal(row["x"] @ p["w"] + p["b"], 1.0).log_prob(row["y"])


def model():
    prior = {"w": dist.Normal(0, 1).expand([COLUMNS]).to_event(1), "b": dist.Normal(0, 1)}
    return wb.Model(prior, _log_likelihood)


def _design(data):
    return np.column_stack([data["x"], np.ones(ROWS)])


def exact_draws(data, seed, shape=(4, 1000)):
    """Independent draws of the posterior."""
    design = _design(data)
    covariance = np.linalg.inv(design.T @ design + np.eye(COLUMNS + 1))
    mean = covariance @ design.T @ data["y"]
    draws = np.random.default_rng(seed).multivariate_normal(mean, covariance, size=shape)
    return {"w": draws[..., :COLUMNS], "b": draws[..., COLUMNS]}


def log_evidence(data, columns, scales=None):
    """Exact log evidence with these columns of the design; the last one is the intercept."""
    design = _design(data)[:, columns] * (np.ones(len(columns)) if scales is None else scales)
    return multivariate_normal.logpdf(data["y"], np.zeros(ROWS), np.eye(ROWS) + design @ design.T)


def log_ratio(data, fixed):
    """Exact log Bayes factor of the model with these columns left out, against all of them."""
    everything = list(range(COLUMNS + 1))
    rest = [column for column in everything if column not in fixed]
    return log_evidence(data, rest) - log_evidence(data, everything)
