"""NumPyro expressions for SciPy distributions."""

from __future__ import annotations

from typing import Any

# By SciPy's name: the NumPyro expression, in terms of SciPy's shape arguments, loc and scale.
_COUNTERPARTS = {
    "norm": "dist.Normal({loc}, {scale})",
    "uniform": "dist.Uniform({loc}, {loc} + {scale})",
    "t": "dist.StudentT({df}, {loc}, {scale})",
    "cauchy": "dist.Cauchy({loc}, {scale})",
    "laplace": "dist.Laplace({loc}, {scale})",
    "logistic": "dist.Logistic({loc}, {scale})",
    "gumbel_r": "dist.Gumbel({loc}, {scale})",
    "expon": "dist.Exponential(1 / {scale})",
    "gamma": "dist.Gamma({a}, 1 / {scale})",
    "invgamma": "dist.InverseGamma({a}, {scale})",
    "beta": "dist.Beta({a}, {b})",
    "halfnorm": "dist.HalfNormal({scale})",
    "halfcauchy": "dist.HalfCauchy({scale})",
    "lognorm": "dist.LogNormal(jnp.log({scale}), {s})",
    "chi2": "dist.Chi2({df})",
    "pareto": "dist.Pareto({scale}, {b})",
    "weibull_min": "dist.Weibull({scale}, {c})",
    "truncnorm": "dist.TruncatedNormal({loc}, {scale}, low={loc} + {a} * {scale}, "
    "high={loc} + {b} * {scale})",
    "loguniform": "dist.LogUniform({a} * {scale}, {b} * {scale})",
    "vonmises": "dist.VonMises({loc}, {kappa})",
}
# These have no location in NumPyro.
_SHIFTED = frozenset(("expon", "gamma", "invgamma", "beta", "halfnorm", "halfcauchy"))
_SHIFTED |= frozenset(("lognorm", "chi2", "pareto", "weibull_min", "loguniform"))
# These have no scale in NumPyro.
_UNSCALED = frozenset(("beta", "chi2"))


def counterpart(frozen: Any) -> str:
    """The NumPyro expression for a SciPy distribution, with its numbers.

    Args:
        frozen: for example ``scipy.stats.norm(0, 2)``; also a distribution without arguments.

    >>> from scipy import stats
    >>> counterpart(stats.norm(1.0, scale=2.0)), counterpart(stats.expon(scale=4.0))
    ('dist.Normal(1.0, 2.0)', 'dist.Exponential(1 / 4.0)')
    >>> counterpart(stats.beta(2, 3, loc=-1, scale=2))
    'dist.TransformedDistribution(dist.Beta(2, 3), dist.transforms.AffineTransform(-1, 2))'
    >>> counterpart(stats.levy())
    'see numpyro.distributions for one like levy'
    """
    generator = getattr(frozen, "dist", frozen)
    name = str(getattr(generator, "name", type(frozen).__name__))
    if name == "reciprocal":  # SciPy's other name for loguniform
        name = "loguniform"
    if name not in _COUNTERPARTS:
        return f"see numpyro.distributions for one like {name.removesuffix('_frozen')}"
    shapes = [part.strip() for part in (generator.shapes or "").split(",") if part.strip()]
    values: dict[str, Any] = {"loc": 0.0, "scale": 1.0}
    given = list(getattr(frozen, "args", ()))
    values |= {part: part for part in shapes}  # names in place of missing numbers
    values |= dict(zip([*shapes, "loc", "scale"], given))
    values |= getattr(frozen, "kwds", {})
    text = _COUNTERPARTS[name].format(**values)
    shift = values["loc"] if name in _SHIFTED else 0.0
    scale = values["scale"] if name in _UNSCALED else 1.0
    if shift == 0 and scale == 1:
        return text
    return (
        f"dist.TransformedDistribution({text}, dist.transforms.AffineTransform({shift}, {scale}))"
    )
