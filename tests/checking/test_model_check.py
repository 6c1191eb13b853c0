"""Every check of a model can fail, each on a model that is broken in its way."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import weighbridge as wb

NORMAL = {"mu": dist.Normal(0.0, 1.0)}
DATA = wb.zoo.gaussian.simulate(20, mean=0.5, seed=1)
CALLS = itertools.count()


def log_density(mu, y):
    return -0.5 * (y - mu) ** 2


GOOD = {
    "gaussian": (wb.zoo.gaussian.model(), DATA),
    "linear": (wb.zoo.linear.model(20), wb.zoo.linear.simulate(300, num_features=20)),
    "logistic": (
        wb.zoo.logistic.model(2, 3),
        wb.zoo.logistic.simulate(40, num_features=2, num_classes=3),
    ),
    "mixture": (wb.zoo.mixture.model(3, 2), wb.zoo.mixture.simulate(40, num_components=3)),
    "autoregressive": (
        wb.zoo.autoregressive.model(2),
        wb.lagged(wb.zoo.autoregressive.simulate(50), order=2),
    ),
    "total": (
        wb.Model(NORMAL, total_log_likelihood=lambda p, data: jnp.sum(log_density(p["mu"], data))),
        DATA,
    ),
    "without data": (wb.Model(NORMAL, total_log_likelihood=lambda p: -(p["mu"] ** 4)), None),
    "positive": (
        wb.Model(
            {"s": dist.HalfCauchy(1.0), "p": dist.Dirichlet(np.ones(3))},
            lambda p, y: dist.Normal(p["p"][0], p["s"]).log_prob(y),
        ),
        DATA,
    ),
    "host": (
        wb.Model(
            NORMAL,
            total_log_likelihood=lambda p: np.array([-0.5 * float(m) ** 2 for m in p["mu"]]),
        ),
        None,
    ),
}


@pytest.mark.long
@pytest.mark.parametrize("name", GOOD)
def test_good_models_pass(name):
    model, data = GOOD[name]
    for seed in (0, 1):
        report = wb.check_model(model, data, seed=seed)
        assert report.passed, str(report)
    if name == "host":
        assert report["gradient"].passed is None
    else:
        assert report["gradient"].passed
        assert "FAIL" not in str(report)
    assert ("exchangeable" in [check.name for check in report.checks]) == (name == "mixture")
    assert jnp.ones(1).dtype == np.float32


@jax.custom_jvp
def with_wrong_sign(mu):
    return mu**3


with_wrong_sign.defjvp(
    lambda primals, tangents: (primals[0] ** 3, -3 * primals[0] ** 2 * tangents[0])
)


@jax.custom_batching.custom_vmap
def mixing(mu, y):
    return log_density(mu, y)


@mixing.def_vmap
def _(size, batched, mu, y):
    values = log_density(mu, y)
    return jnp.full(values.shape, jnp.sum(values) / 7), True


def counting(p):
    return np.asarray(p["mu"], float) + next(CALLS)


def rows(function, prior=NORMAL, **others):
    return wb.Model(prior, function, **others)


def total(function, **others):
    return wb.Model(NORMAL, total_log_likelihood=function, **others)


def unequal(p, y):
    return jax.nn.logsumexp(jnp.log(jnp.array([0.2, 0.8])) + log_density(p["m"], y))


def mixture(prior, function=unequal, names=("m",)):
    return wb.Model(prior, function, exchangeable=dict.fromkeys(names, 0))


TWO = dist.Normal(0.0, 1.0).expand([2]).to_event(1)


class Doubling(dist.transforms.AffineTransform):
    """Whose inverse is not its inverse."""

    def _inverse(self, y):
        return y - 1.0


class Support(type(dist.constraints.real)):
    pass


@dist.biject_to.register(Support)
def _(constraint):
    return Doubling(0.0, 2.0)


class Astray(dist.Normal):
    support = Support()


# the broken model, the check that fails, and what its message says
BROKEN = {
    "edge": (
        rows(lambda p, y: log_density(p["a"], y), {"a": dist.Beta(1e-3, 1e-3)}),
        "transform",
        "edge of their support",
    ),
    "no inverse": (
        rows(lambda p, y: log_density(p["a"], y), {"a": Astray(0.0, 1.0)}),
        "transform",
        "exact inverse",
    ),
    "prior": (
        rows(
            lambda p, y: log_density(p["s"], y),
            {"s": dist.Normal(0, 1), "x": lambda p: dist.Normal(0.0, jnp.exp(-1000 * p["s"] ** 2))},
        ),
        "prior",
        "scales",
    ),
    "wrong column": (rows(lambda p, row: row["z"] * p["mu"]), "runs", "fails on one row"),
    "vector": (rows(lambda p, y: y * jnp.ones(2) * p["mu"]), "runs", "must be a scalar"),
    "total vector": (total(lambda p: p["mu"] * jnp.ones(3)), "runs", "one real number"),
    "host error": (total(lambda p: {}[float(p["mu"][0])], on_host=True), "runs", ""),
    "random row": (
        rows(lambda p, y: log_density(p["mu"], y) + np.random.default_rng().normal()),
        "deterministic",
        "random numbers",
    ),
    "random total": (
        total(lambda p: -(p["mu"] ** 2) + np.random.default_rng().normal()),
        "deterministic",
        "random numbers",
    ),
    "random host": (total(counting, on_host=True), "deterministic", "counters"),
    "nan": (rows(lambda p, y: log_density(jnp.log(p["mu"]), y)), "finite", "log(0)"),
    "plus infinity": (
        rows(lambda p, y: jnp.where(p["mu"] > 1, jnp.inf, log_density(p["mu"], y))),
        "finite",
        "overflow",
    ),
    "impossible": (
        rows(lambda p, y: jnp.where(p["mu"] > 1.0, log_density(p["mu"], y), -jnp.inf)),
        "possible",
        "support of the likelihood",
    ),
    "never": (
        rows(lambda p, y: jnp.where(p["mu"] > 90, log_density(p["mu"], y), -jnp.inf)),
        "possible",
        "units of the data",
    ),
    "stopped": (
        rows(lambda p, y: log_density(jax.lax.stop_gradient(p["mu"]), y)),
        "gradient",
        "stop_gradient",
    ),
    "wrong sign": (
        rows(lambda p, y: log_density(with_wrong_sign(p["mu"]), y)), "gradient", "custom_jvp"
    ),
    "stopped among steep ones": (
        rows(
            lambda p, y: log_density(1e4 * p["a"], y) + jax.lax.stop_gradient(p["b"]) * 0.01,
            {"a": dist.Normal(0, 1), "b": dist.Normal(0, 1)},
        ),
        "gradient",
        "stop_gradient",
    ),
    "stopped in many dimensions": (
        rows(
            lambda p, y: log_density(jax.lax.stop_gradient(p["w"][7]) + p["w"][0], y),
            {"w": dist.Normal(0, 1).expand([50]).to_event(1)},
        ),
        "gradient",
        "stop_gradient",
    ),
    "single precision": (
        rows(lambda p, y: log_density(p["mu"].astype(jnp.float32), y).astype(jnp.float64)),
        "gradient",
        "float32",
    ),
    "rounded": (
        rows(lambda p, y: log_density(jnp.round(p["mu"], 4), y)), "gradient", "",
    ),
    "nan slope": (
        rows(lambda p, y: y * jnp.where(p["mu"] > 0, jnp.sqrt(p["mu"]), 0.0)),
        "gradient",
        "jnp.where",
    ),
    "loop": (
        total(lambda p: jax.lax.while_loop(lambda x: x < -9.0, lambda x: x / 2, -(p["mu"] ** 2))),
        "gradient",
        "while",
    ),
    "mixed rows": (rows(lambda p, y: mixing(p["mu"], y)), "rows", "custom_vmap"),
    "ignored row": (
        rows(lambda p, y: jnp.sum(log_density(p["mu"], DATA))), "rows", "of ONE row"
    ),
    "unequal likelihood": (mixture({"m": TWO}), "exchangeable", "same prior and likelihood"),
    "unequal prior": (
        mixture(
            {"m": dist.Normal(jnp.array([0.0, 1.0]), 1.0).to_event(1)},
            lambda p, y: jax.nn.logsumexp(log_density(p["m"], y)),
        ),
        "exchangeable",
        "one prior",
    ),
    "half named": (
        mixture(
            {"m": TWO, "b": TWO}, lambda p, y: jax.nn.logsumexp(log_density(p["m"], y) + p["b"])
        ),
        "exchangeable",
        "permuted together",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN)
def test_broken_models_fail(name):
    model, check, remedy = BROKEN[name]
    data = DATA if model.log_likelihood is not None else None
    report = wb.check_model(model, data)
    assert report[check].passed is False, str(report)
    assert remedy in report[check].remedy
    assert not report.passed
    assert f"  {check}: {report[check].remedy}" in str(report)
    others = {found.name for found in report.checks if found.passed is False} - {check}
    # A model may be broken in what follows from it, too.
    allowed = {"edge": {"gradient"}, "prior": {"gradient"}}
    assert others <= allowed.get(name, set()), str(report)


def test_without_data_only_the_prior_is_checked():
    report = wb.check_model(wb.zoo.gaussian.model())
    assert [check.name for check in report.checks] == ["transform", "prior", "runs"]
    assert report["runs"].passed is None
    assert report.passed
    mixed = mixture({"m": dist.Normal(jnp.array([0.0, 1.0]), 1.0).to_event(1)})
    assert wb.check_model(mixed)["exchangeable"].passed is False
    with pytest.raises(KeyError, match="There is no check 'rows'"):
        report["rows"]


def test_mistakes_in_the_call():
    with pytest.raises(wb.MethodError, match=r"wb\.from_numpyro"):
        wb.check_model(lambda: None, DATA)
    with pytest.raises(wb.MethodError, match="seed"):
        wb.check_model(wb.zoo.gaussian.model(), DATA, seed=-1)
    with pytest.raises(wb.DataError, match=r"row 1 .* is nan"):
        wb.check_model(wb.zoo.gaussian.model(), [1.0, np.nan])


def test_the_same_seed_gives_the_same_report():
    model, data = GOOD["linear"]
    assert wb.check_model(model, data, seed=3) == wb.check_model(model, data, seed=3)
    assert wb.check_model(model, data, seed=3) != wb.check_model(model, data, seed=4)


def test_data_may_come_in_chunks():
    chunks = iter([{"y": DATA[:7]}, {"y": DATA[7:]}])
    model = rows(lambda p, row: log_density(p["mu"], row["y"]))
    whole = wb.check_model(model, {"y": DATA})
    assert wb.check_model(model, chunks) == whole


def test_weights_count():
    weighted = {"y": DATA, "weight": np.arange(20.0)}
    model = rows(lambda p, row: log_density(p["mu"], row["y"]))
    report = wb.check_model(model, weighted)
    assert report["rows"].passed, str(report)
