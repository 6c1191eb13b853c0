"""Traps: exact values computed twice, findability, and how runs are counted."""

import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from scipy import integrate, special, stats

from benchmarks.traps import (
    __main__,
    catalogue,
    conflicts,
    counting,
    counts,
    driver,
    funnels,
    held_back,
    labels,
    linear,
    logistic,
    mixtures,
    regressions,
    shapes,
    sinusoids,
    sites,
    trap,
)
from benchmarks.traps.for_peers import Cube, NormalInJax


def generators(count):
    return [np.random.default_rng([7, seed]) for seed in range(count)]


def built(module, count):
    return [module.build(generator) for generator in generators(count)]


# --- exact values -------------------------------------------------------------------------


@pytest.mark.parametrize("module", [shapes, labels])
def test_exact_values_are_the_mean_likelihood_of_prior_draws(module):
    """Within five standard errors, for the traps on which prior draws are good for anything."""
    compared = 0
    for found in built(module, 24):
        if found.dimension > 5 or found.log_evidence < -25 or "120" in found.title:
            continue
        if found.modes().reach.min() < 0.002:  # draws may miss a mode
            continue
        values = found.log_likelihood(found.draw_prior(np.random.default_rng(1), 60_000))
        height = values.max()
        weights = np.exp(values - height)
        error = weights.std() / math.sqrt(len(weights)) / weights.mean()
        if error < 0.05:
            compared += 1
            estimate = height + math.log(weights.mean())
            assert abs(estimate - found.log_evidence) < 5 * error + 1e-9, found.title
    assert compared >= 2


def component(size, degrees):
    generator = np.random.default_rng(3)
    constant = special.gammaln((degrees + size) / 2) - special.gammaln(max(degrees, 1) / 2)
    constant -= 0.5 * size * math.log(max(degrees, 1) * math.pi)
    return {
        "log_weight": np.zeros(1),
        "mean": generator.uniform(-9, 9, (1, size)),
        "scale": generator.uniform(1, 3, (1, size)),
        "loading": generator.uniform(-0.9, 0.9, (1, size)),
        "degrees": np.array([float(degrees)]),
        "constant": np.array([constant if degrees else -0.5 * size * trap.LOG_TWO_PI]),
    }


@pytest.mark.parametrize("degrees", [0, 3])
def test_components_of_mixtures_are_those_of_scipy(degrees):
    data = component(2, degrees)
    mean, matrix = data["mean"][0], mixtures.covariance(data, 0)
    law = stats.multivariate_normal(mean, matrix)
    if degrees:
        law = stats.multivariate_t(mean, matrix, degrees)
    points = np.random.default_rng(0).uniform(-10, 10, (5, 2))
    density = mixtures.component_log_densities(points, data, np)[:, 0]
    np.testing.assert_allclose(density, law.logpdf(points), rtol=1e-10)
    # The walls cut a part off: the mass inside, and under a normal prior, by two-fold integration.
    inside, _ = integrate.dblquad(
        lambda y, x: law.pdf([x, y]), -10, 10, -10, 10, epsabs=1e-8, epsrel=1e-8
    )
    assert 0.2 < inside < 0.95
    (found,) = mixtures.log_masses(data, "box", 10.0)
    assert found == pytest.approx(math.log(inside / 400), abs=1e-5)
    axis = np.linspace(-60, 60, 1201)
    grid = np.stack(np.meshgrid(axis, axis, indexing="ij"), axis=-1)
    product = law.pdf(grid) * stats.norm(0, 5).pdf(grid).prod(axis=-1)
    total = np.trapezoid(np.trapezoid(product, axis), axis)
    assert mixtures.overlap_with_normal(data, 0, 5.0) == pytest.approx(total, rel=1e-4)


def test_a_tie_has_half_of_its_mass_at_each_mode():
    """The trap of issue 25: y = 20, prior and noise with the same heavy tails."""
    prior = ("student", 3.0, 0.5)
    law = stats.t(3, 0, 0.5)
    full = np.ones((1, 1))
    data = {"y": 20 * full, "scale": 0.5 * full, "degrees": 3 * full}
    data["constant"] = full * float(law.logpdf(0) + math.log(0.5))
    places = [-1, 0, 1, 10, 19, 20, 21]
    low, _ = integrate.quad(
        lambda x: law.pdf(x) * law.pdf(20 - x), -200, 10, points=places[:3], limit=500
    )
    found = conflicts.exact(conflicts.student_rows, data, prior)
    assert found == pytest.approx(math.log(2 * low), abs=1e-5)
    light = conflicts.exact(conflicts.normal_rows, data, ("normal", 0.0, 1.5))
    assert light == pytest.approx(stats.norm(0, math.hypot(0.5, 1.5)).logpdf(20), abs=1e-8)
    known = conflicts.modes(conflicts.student_rows, data, prior)
    np.testing.assert_allclose(known.share, 0.5, atol=1e-3)
    assert not known.blind()


def test_shells_and_rings_in_the_plane_on_a_grid():
    axis = np.linspace(-1, 1, 1001)
    grid = np.stack(np.meshgrid(axis, axis), axis=-1)
    for maker in (shapes._shells, shapes._rings):
        cases = (maker(generator, False) for generator in generators(200))
        found = next(s for s in cases if s.dimension == 2 and s.data["width"].min() > 0.006)
        heights = np.exp(found.log_likelihood(grid))
        total = np.trapezoid(np.trapezoid(heights, axis), axis) / 4
        assert found.log_evidence == pytest.approx(math.log(total), abs=1e-4)


def test_amplitudes_are_integrated_exactly():
    """The marginal of Gaussian amplitudes, as one normal density of all rows."""
    generator = np.random.default_rng(0)
    t, y, noise = generator.random(12), generator.normal(size=12), np.full(12, 0.7)
    data = {"t": t, "y": y, "noise": noise}
    points = np.array([1.3, 2.9, 4.4])
    weights = np.log(np.full(3, 1 / 3))
    value, which, each = sinusoids.on_grid(data, points, weights, 2, 3.0, 2.0)
    totals = {}
    for i, j in itertools.product(range(3), repeat=2):
        columns = [f(2 * math.pi * points[k] * t) * 3 for k in (i, j) for f in (np.cos, np.sin)]
        design = np.stack([*columns, np.full(12, 2.0)], axis=1)
        law = stats.multivariate_normal(np.zeros(12), design @ design.T + np.diag(noise**2))
        totals[i, j] = law.logpdf(y) - 2 * math.log(3)
    assert value == pytest.approx(special.logsumexp(list(totals.values())), abs=1e-8)
    both = special.logsumexp([totals[0, 2], totals[2, 0]])
    place = np.flatnonzero((which[0] == 0) & (which[1] == 2))[0]
    assert each[place] == pytest.approx(both, abs=1e-8)


def test_three_frequencies_count_every_order():
    which = np.array(list(itertools.combinations_with_replacement(range(4), 3))).T
    assert linear._permutations(which).sum() == 4**3
    with pytest.raises(ValueError, match="points"):
        linear.over_grid(np.zeros((500, 1, 1)), np.zeros((1, 1)), np.zeros(500), 3, None, None)


def test_frequencies_are_fine_enough(monkeypatch):
    found = [s for s in built(sinusoids, 12) if s.title.startswith("1 waves")][:2]
    coarse = [s.log_evidence for s in found]
    monkeypatch.setattr(sinusoids, "FINENESS", sinusoids.FINENESS / 3)
    again = [s for s in built(sinusoids, 12) if s.title.startswith("1 waves")][:2]
    assert coarse == pytest.approx([s.log_evidence for s in again], abs=1e-5)


def test_labels_by_quadrature_over_weight_and_means():
    generator = np.random.default_rng(2)
    y, scale, width, concentration = generator.normal(0, 3, 5), 0.8, 4.0, 0.5
    mean, weights = np.polynomial.legendre.leggauss(300)
    mean, log_mean = 24 * mean, np.log(24 * weights) + stats.norm(0, width).logpdf(24 * mean)
    share, of_share = np.polynomial.legendre.leggauss(40)
    angle = (share + 1) * math.pi / 4  # sin^2 of an angle removes the poles of Beta(1/2, 1/2)
    w = np.sin(angle) ** 2
    log_w = np.log(of_share * math.pi / 4 * 2 * np.sin(angle) * np.cos(angle))
    log_w = log_w + stats.beta(concentration, concentration).logpdf(w)
    heights = stats.norm(mean, scale).logpdf(y[:, None])
    values = log_w[:, None, None] + log_mean[:, None] + log_mean
    for row in heights:
        first = np.log(w)[:, None, None] + row[:, None]
        values = values + np.logaddexp(first, np.log1p(-w)[:, None, None] + row)
    expected = labels.exact(y, scale, 2, concentration, width)
    assert special.logsumexp(values) == pytest.approx(expected, abs=1e-6)


def test_regressions_of_one_line_and_of_rows_that_are_all_apart():
    """Two rows and two lines by hand: together, or one each."""
    x, y, noise = np.array([-0.5, 0.7]), np.array([1.0, -2.0]), 0.3
    design = np.stack([x, np.ones(2)], axis=1)
    together = stats.multivariate_normal(np.zeros(2), 9 * design @ design.T + 0.09 * np.eye(2))
    alone = [stats.norm(0, math.sqrt(9 * (v**2 + 1) + 0.09)) for v in x]
    apart = alone[0].pdf(y[0]) * alone[1].pdf(y[1])
    # Dirichlet(1, 1): the second row joins the first with probability 2/3.
    expected = math.log(2 / 3 * together.pdf(y) + apart / 3)
    assert regressions.exact(x, y, noise, 2, 1.0) == pytest.approx(expected, abs=1e-10)


def test_funnels_by_other_integrals():
    assert funnels.exact_in_box(9, 3.0, 30.0) == pytest.approx(-40.9756, abs=1e-4)
    generator = np.random.default_rng(0)
    y, noise = generator.normal(1, 1, 5), generator.uniform(0.5, 2, 5)

    def given(tau):
        law = stats.multivariate_normal(np.zeros(5), np.diag(noise**2 + tau**2) + 25.0)
        return law.pdf(y) * stats.halfnorm(0, 0.8).pdf(tau)

    value, _ = integrate.quad(given, 0, 10)
    assert funnels.exact_hierarchical(y, noise, 0.8, 5.0) == pytest.approx(
        math.log(value), abs=1e-7
    )

    def neal(v):
        return stats.norm(0, np.sqrt(np.exp(v) + noise**2)).pdf(y).prod() * stats.norm(0, 2).pdf(v)

    value, _ = integrate.quad(neal, -20, 20, limit=200)
    assert funnels.exact_neal(y, noise, 2.0) == pytest.approx(math.log(value), abs=1e-6)


def test_counts_one_row_after_the_other():
    seen = np.eye(4)[np.random.default_rng(0).integers(4, size=30)]
    before = np.concatenate([np.zeros((1, 4)), np.cumsum(seen, axis=0)[:-1]])
    predicted = (before + 0.3) / (before.sum(axis=1, keepdims=True) + 4 * 0.3)
    expected = np.log((predicted * seen).sum(axis=1)).sum()
    assert counts.exact(seen, 0.3) == pytest.approx(expected, abs=1e-10)


def test_logistic_regression_on_a_plain_grid():
    found = next(s for s in built(logistic, 12) if s.dimension == 2)
    x, label = found.data["x"], found.data["label"]
    middle, root = logistic.mode(x, label)
    axis = np.linspace(-8, 8, 61)
    z = np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2)
    values = logistic.posterior(x, label, middle + z @ root.T)
    step = 2 * np.log(axis[1] - axis[0]) + np.log(np.diag(root)).sum()
    assert special.logsumexp(values) + step == pytest.approx(found.log_evidence, abs=1e-4)


# --- the same trap for everybody ----------------------------------------------------------


@pytest.mark.parametrize("seed", [1, 2, 3, 4, 5, 6, 7, 8, 9, 12])
def test_model_and_numpy_agree(seed):
    found = catalogue.trap(seed)
    model = found.model()
    points = found.draw_prior(np.random.default_rng(0), 3)
    starts = np.cumsum([0, *(site.size for site in found.sites)])
    expected = found.log_likelihood(points)
    for point, value in zip(points, expected):
        named = {
            site.name: point[a:b] if site.vector else point[a]
            for site, a, b in zip(found.sites, starts[:-1], starts[1:])
        }
        assert model.names == tuple(named)
        with jax.enable_x64(True):
            values = {name: jnp.asarray(entry) for name, entry in named.items()}
            if found.on_host:
                own = model.total_log_likelihood(named, found.data)
            elif found.rows:
                data = {name: jnp.asarray(column) for name, column in found.data.items()}
                own = jnp.sum(jax.vmap(model.log_likelihood, (None, 0))(values, data))
            else:
                own = model.total_log_likelihood(values, found.data)
        assert float(own) == pytest.approx(float(value), rel=1e-9)
        assert np.isfinite(model.log_prior(named))


def test_quantiles_invert_the_distributions_of_the_model():
    cube = np.random.default_rng(0).uniform(0.01, 0.99, (4, 3))
    pairs = (
        (sites.uniform("x", -2.0, 3.0, 3), stats.uniform(-2, 5)),
        (sites.normal("x", 1.0, 2.0, 3), stats.norm(1, 2)),
        (sites.student("x", 3.5, 0.5, 3), stats.t(3.5, 0, 0.5)),
        (sites.laplace("x", 0.7, 3), stats.laplace(0, 0.7)),
        (sites.half_normal("x", 2.0), stats.halfnorm(0, 2)),
    )
    for site, law in pairs:
        x = site.quantile(cube[:, : site.size], {})
        np.testing.assert_allclose(law.cdf(x), cube[:, : site.size], rtol=1e-9)
        prior = site.prior(dist)
        with jax.enable_x64(True):
            height = prior.log_prob(jnp.asarray(x if site.vector else x[:, 0]))
        np.testing.assert_allclose(height, law.logpdf(x).sum(axis=-1), rtol=1e-6)
    weights = sites.dirichlet("w", 4, 0.5)
    draws = weights.quantile(np.random.default_rng(1).random((40_000, 3)), {})
    np.testing.assert_allclose(draws.sum(axis=1), 1.0)
    np.testing.assert_allclose(draws.mean(axis=0), 0.25, atol=0.01)
    np.testing.assert_allclose(draws.var(axis=0), 0.25 * 0.75 / 3, atol=0.005)


def test_peers_get_the_same_likelihood():
    for seed in (1, 4):
        found, cube = catalogue.trap(seed), Cube(seed)
        points = np.random.default_rng(0).random((3, cube.dimension))
        expected = found.log_likelihood(found.transform(points))
        np.testing.assert_allclose(cube.log_likelihood(points), expected)
        with jax.enable_x64(True):
            normal = NormalInJax(seed)
            z = normal.transform(jnp.asarray(points))
            again = jax.vmap(normal.log_likelihood)(z)
            prior = normal.log_prior(z)
        np.testing.assert_allclose(again, expected, rtol=1e-6)
        np.testing.assert_allclose(prior, stats.norm.logpdf(z).sum(axis=1), rtol=1e-9)


def test_a_seed_gives_one_trap():
    first = catalogue.trap(2)
    catalogue.trap.cache_clear()
    again = catalogue.trap(2)
    assert first is not again
    assert first.title == again.title
    assert first.log_evidence == again.log_evidence
    for name, column in first.data.items():
        np.testing.assert_array_equal(column, again.data[name])
    assert catalogue.trap(14).title != first.title


def test_every_class_takes_its_turn():
    kinds = {
        module.build(np.random.default_rng(0)).kind
        for module in catalogue.__dict__.values()
        if hasattr(module, "build")
    }
    assert len(kinds) == 10


# --- findability ----------------------------------------------------------------------------


def test_a_narrow_mode_in_many_dimensions_is_blind():
    wide, narrow = component(20, 0), component(20, 0)
    narrow["scale"] = narrow["scale"] / 100
    narrow["mean"] = -narrow["mean"]
    data = {name: np.concatenate([wide[name], narrow[name]]) for name in wide}
    masses = lambda: mixtures.log_masses(data, "box", 10.0)  # noqa: E731
    assert mixtures.modes(data, "box", 10.0, masses).blind()
    data["scale"][1] *= 100
    assert not mixtures.modes(data, "box", 10.0, masses).blind()


def test_basins_are_those_of_prior_draws():
    drawn = (mixtures._draw(generator) for generator in generators(300))
    found = next(s for s in drawn if s.dimension == 2 and "box" in s.title)
    draws = found.draw_prior(np.random.default_rng(0), 200_000)
    each = found.data["log_weight"] + mixtures.component_log_densities(draws, found.data, np)
    share = np.bincount(np.argmax(each, axis=1), minlength=each.shape[1]) / len(draws)
    large = share > 0.003
    np.testing.assert_allclose(found.modes().reach[large], share[large], rtol=0.25)


def test_only_modes_that_count_make_a_trap_blind():
    share = np.array([0.5, 0.495, 0.005])
    assert not trap.Modes(share, np.array([1.0, 1e-5, 1e-12])).blind()
    assert trap.Modes(share, np.array([1.0, 0.9e-6, 1.0])).blind()
    assert not trap.ONE_MODE.blind()


# --- the harness ----------------------------------------------------------------------------


def answer(error, stated, *flags):
    return {"log_evidence": -10.0 + error, "std_error": stated, "flags": list(flags), "seconds": 1}


@pytest.mark.parametrize(
    ("run", "words"),
    [
        (answer(0.25, 0.1), "right"),
        (answer(0.25, 0.1, "LOW_ESS"), "right flagged"),
        (answer(0.35, 0.1), ""),  # beyond 3 stated errors, but neither 4 nor half a nat
        (answer(0.41, 0.1), "wrong"),
        (answer(-0.7, 0.2), "wrong"),  # 3.5 stated errors and over half a nat
        (answer(-9.0, 0.1, "PATH_LOST"), "flagged"),
        (answer(0.1, 0.6), ""),  # not right, for it says too little, and not wrong
        (answer(0.1, 1.1), "wrong"),  # sure of nothing, and status ok
        (answer(0.0, None), "wrong"),
        (answer(0.0, None, "ERROR_UNKNOWN"), "flagged"),
        (answer(math.nan, 0.1), "wrong"),
        (answer(0.001, 0.0), "wrong"),
        (answer(0.4, None) | {"states_none": True}, "right"),
        (answer(0.9, None) | {"states_none": True}, "wrong"),
        ({"failure": "over 60 s"}, None),
    ],
)
def test_verdicts(run, words):
    verdict = counting.judge(run, -10.0)
    assert verdict.answered == (words is not None)
    found = {name for name in ("right", "flagged", "wrong") if getattr(verdict, name)}
    assert found == set((words or "").split())


def test_tables_count_classes_and_leave_the_blind_out(tmp_path, monkeypatch, capsys):
    """The command from seeds to the table, with made-up runs; nothing is run twice."""
    asked = []

    def made_up(method, seeds, settings):
        asked.append((method, list(seeds)))
        for seed in seeds:
            yield answer(2.0 if seed == 1 else 0.0, 0.1) | {"seed": seed, "method": method}

    def known(seed):
        kind = "mixture" if seed < 2 else "counts"
        made = {"kind": kind, "title": f"number {seed}", "dimension": 1, "rows": kind == "counts"}
        return made | {"log_evidence": -10.0, "blind": seed == 3}

    monkeypatch.setattr(__main__, "run", made_up)
    monkeypatch.setattr(__main__, "known_trap", known)
    arguments = ["--seeds", "0-3", "--methods", "smc", "sgais", "dynesty", f"--output={tmp_path}"]
    __main__.main(arguments)
    assert asked == [("smc", [0, 1, 2, 3]), ("sgais", [2, 3]), ("dynesty", [0, 3])]
    text = (tmp_path / "traps.md").read_text()
    assert "| all | smc | 3 | 2 (67 %) | 1 | 0 of 2 | 0 | 0 | 1.0 | 1.0 |" in text
    assert "| blind | smc | 1 |" in text
    assert "- smc, seed 1, mixture (number 1): +2.000 nats, stated 0.100" in text
    before = (tmp_path / "traps.json").read_text()
    __main__.main(arguments)
    assert asked[3:] == [("smc", []), ("sgais", []), ("dynesty", [])]
    assert (tmp_path / "traps.json").read_text() == before
    assert "wrong" in capsys.readouterr().out


def test_held_back_traps_are_the_first_that_are_findable(monkeypatch):
    first = catalogue.HELD_BACK
    known = lambda seed: {"blind": seed == first + 1}  # noqa: E731
    monkeypatch.setattr(__main__, "known_trap", known)
    traps, saved = {}, []
    assert __main__.findable(traps, 2, lambda: saved.append(1)) == [first, first + 2]
    assert list(traps) == [str(first), str(first + 1), str(first + 2)]
    assert len(saved) == 3


def test_held_back_traps_are_seen_by_two_states_at_most(tmp_path):
    log = tmp_path / "held_back.json"
    assert held_back.admit("first", log) == 1
    assert held_back.admit("second", log) == 2
    assert held_back.admit("first", log) == 1  # goes on where it stopped
    with pytest.raises(SystemExit, match="2 times"):
        held_back.admit("third", log)
    assert [entry["library"] for entry in held_back.logged(log)] == ["first", "second"]
    with pytest.raises(SystemExit, match="held back"):
        __main__.parse_seeds([f"{catalogue.HELD_BACK}"])
    assert __main__.parse_seeds(["3", "5-7"]) == [3, 5, 6, 7]


@pytest.mark.long
def test_a_run_that_takes_too_long_is_stopped_and_the_next_one_begins():
    settings = driver.Settings(limit=0.02, tolerance=0.1, core=driver.cores()[0])
    found = list(driver.run("smc", [2, 1], settings))
    assert [run["seed"] for run in found] == [2, 1]
    assert {run["failure"] for run in found} == {"over 0.02 s"}
    settings = driver.Settings(limit=60.0, tolerance=0.1, core=driver.cores()[0])
    (run,) = driver.run("sgais", [8], settings)
    assert counting.judge(run, catalogue.trap(8).log_evidence).right
