"""The problems of the benchmarks, written for weighbridge and again for its peers, agree."""

import dataclasses
import itertools
import json
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special, stats

import weighbridge as wb
from benchmarks import problems
from benchmarks.peers import targets
from benchmarks.sgais import headline, references, row_orders, rows, shift
from benchmarks.sgais.problems import log_prior_of_slopes

pytestmark = pytest.mark.long


def columns(data):
    if data is None:
        return {}
    return data if isinstance(data, dict) else {"y": np.asarray(data).reshape(-1)}


def parameters(name, point):
    """The peers' parameters as those of the model."""
    if name == "gaussian":
        return {"mu": point[0]}
    if name.startswith("linear"):
        return {"w": point[:-1], "b": point[-1]}
    if name == "softmax":
        table = point.reshape(4, 11)
        return {"w": table[:, :-1], "b": table[:, -1]}
    if name == "mixture":
        first, second = special.expit(point[:2])
        weights = np.array([first, (1 - first) * second, (1 - first) * (1 - second)])
        return {"weights": weights, "s2": np.exp(point[2:5])[:, None], "mu": point[5:][:, None]}
    return {"x": point}


@pytest.mark.parametrize("name", targets.NAMES)
def test_likelihoods_agree(name):
    problem = problems.CATALOGUE[name].build()
    data = columns(problem.data)
    target = targets.numpy_target(name, data)
    points = target.draw_prior(np.random.default_rng(0), 3)
    expected = []
    with jax.enable_x64(True):
        for point in points:
            values = jax.tree_util.tree_map(jnp.asarray, parameters(name, point))
            if problem.model.log_likelihood is None:
                expected.append(float(problem.model.total_log_likelihood(values)))
            else:
                per_row = jax.vmap(problem.model.log_likelihood, in_axes=(None, 0))
                expected.append(float(jnp.sum(per_row(values, problem.data))))
        in_jax = targets.jax_target(name, data)
        again = [float(in_jax.log_likelihood(jnp.asarray(point))) for point in points]
    np.testing.assert_allclose(target.log_likelihood(points), expected, rtol=1e-9)
    np.testing.assert_allclose(again, expected, rtol=1e-9)


@pytest.mark.parametrize("name", ["gaussian", "shells-2", "mixture"])
def test_the_prior_of_the_peers_is_the_derivative_of_their_transform(name):
    """A cube of side h maps to a volume h^d / density: the Jacobian, by finite differences."""
    target = targets.numpy_target(name, {"y": np.zeros(1)})
    size, width = target.dimension, 1e-5
    for cube in np.random.default_rng(1).uniform(0.1, 0.9, (3, size)):
        steps = width * np.eye(size)
        jacobian = (target.transform(cube + steps) - target.transform(cube - steps)) / (2 * width)
        expected = -np.linalg.slogdet(jacobian)[1]
        assert abs(target.log_prior(target.transform(cube)) - expected) < 1e-6


def test_the_evidences_of_products_are_those_of_their_factors():
    def log_gamma(place):
        """Mass of exp(30 (x - place)) of a unit exponential in [0, 1]."""
        return math.exp(-math.exp(-30 * place)) - math.exp(-math.exp(30 * (1 - place)))

    def normal(place, scale, low, high):
        return special.ndtr((high - place) / scale) - special.ndtr((low - place) / scale)

    pairs = (
        log_gamma(1 / 3) + log_gamma(2 / 3),
        sum(normal(m, 1 / 30, 0, 1) for m in (1 / 3, 2 / 3)),
    )
    product = pairs[0] / 2 * pairs[1] / 2 * log_gamma(2 / 3) ** 4 * normal(2 / 3, 1 / 30, 0, 1) ** 4
    assert abs(problems.log_gamma().log_evidence - math.log(product)) < 1e-6
    spike, slab = (normal(0, scale, -0.5, 0.5) ** 10 for scale in (0.01, 0.1))
    assert abs(problems.spike_and_slab().log_evidence - math.log(100 * spike + slab)) < 1e-6


def test_evidences_by_quadrature():
    v = np.linspace(-30, 30, 200_001)
    mass = special.erf(30 / (math.sqrt(2) * np.exp(v / 2))) ** 9
    density = np.exp(-(v**2) / 18) / math.sqrt(18 * math.pi)
    funnel = math.log(np.trapezoid(density * mass, v)) - 10 * math.log(60)
    assert abs(problems.funnel().log_evidence - funnel) < 1e-5
    x = np.linspace(-10, 10, 200_001)
    inner = special.ndtr(10 * (10 - x**2)) - special.ndtr(10 * (-10 - x**2))
    area = np.trapezoid(np.exp(-0.5 * (1 - x) ** 2) * inner, x) * math.sqrt(2 * math.pi) / 10
    assert abs(problems.rosenbrock().log_evidence - math.log(area / 400)) < 1e-5


def test_relabelling_keeps_the_density_of_the_mixture():
    """The reference sums over the orders of the components in these coordinates."""
    from benchmarks.references import relabel

    point = np.random.default_rng(0).standard_normal((1, 8))
    images = [relabel(point, order)[0] for order in itertools.permutations(range(3))]
    weights = [np.sort(special.softmax(np.append(image[:2], 0.0))) for image in images]
    np.testing.assert_allclose(weights, np.tile(weights[0], (6, 1)))
    assert len({tuple(image.round(12)) for image in images}) == 6


def test_the_headline_of_sgais_on_toy_sizes(tmp_path, monkeypatch):
    """Answers, a stream and a comparison, from the run to the tables and the figure."""
    small = wb.SGAIS(num_islands=4, batch_size=256)
    methods = {
        "linear-1e6": small,
        "stream-linear": dataclasses.replace(small, chunk_size=500, reservoir=1_000),
        "compare-linear-sgais-1e3": small,
    }
    arguments = ["--rows=1500", "--seeds=1", f"--output={tmp_path}"]
    options = headline.parser().parse_args(arguments)
    for name, method in methods.items():
        row = dataclasses.replace(rows.ROWS[name], method=method)
        monkeypatch.setitem(rows.ROWS, name, row)
        headline.work(name, options)
    headline.write(tmp_path)
    records = json.loads((tmp_path / "sgais.json").read_text())
    exact = wb.zoo.linear.log_evidence(wb.zoo.linear.simulate(1_500, seed=1))
    for name in ("linear-1e6", "stream-linear"):
        assert records[name]["reference"]["value"] == exact
        assert abs(records[name]["runs"][0]["answer"] - exact) < 0.01
    text = (tmp_path / "sgais.md").read_text()
    assert "answer <= 0.01" in text
    assert "MB at rows" in text
    assert (tmp_path / "sgais-linear.png").stat().st_size > 1_000
    # More seeds are added to those that are there.
    more = headline.parser().parse_args([*arguments, "--seeds=2", "--more"])
    headline.work("linear-1e6", more)
    runs = json.loads((tmp_path / "sgais.json").read_text())["linear-1e6"]["runs"]
    assert runs[0] == records["linear-1e6"]["runs"][0]
    assert len(runs) == 2
    assert runs[1]["path"] != runs[0]["path"]


def test_the_shift_study_on_a_toy_size(tmp_path):
    """All orders of the same rows, to the verdict; what is there is not run again."""
    arguments = ["--only", "3", "--seeds=1", "--rows=300", f"--output={tmp_path}"]
    shift.main(arguments)
    records = json.loads((tmp_path / "shift.json").read_text())
    ordered, shuffled, default = (records[f"3 {order} 0 300"] for order in shift.ORDERS)
    error = math.hypot(ordered["stated"], shuffled["stated"])
    assert 0 < abs(ordered["answer"] - shuffled["answer"]) < 4 * error
    assert default["path"] == ordered["path"]  # 300 rows have no change yet
    text = (tmp_path / "shift.md").read_text()
    assert "not measured" in text  # the other models
    assert "(goal 1, met)" in text
    before = (tmp_path / "shift.json").read_text()
    shift.main(arguments)
    assert (tmp_path / "shift.json").read_text() == before


def test_what_the_order_of_rows_costs_on_a_toy_size(tmp_path):
    row_orders.main(["--rows=1000", "--stream-rows=1000", "--seeds=1", f"--output={tmp_path}"])
    text = (tmp_path / "row_orders.md").read_text()
    given, default = (
        next(line for line in text.splitlines() if line.startswith(f"| {order}")).split(" | ")
        for order in ("as given", "by default")
    )
    # The same rows in two orders have one evidence.
    apart = float(given[2].replace(",", "")) - float(default[2].replace(",", ""))
    assert abs(apart) < 4 * math.hypot(float(given[3]), float(default[3])) + 0.001
    assert "| 1,000 |" in text  # the stream came to its end


def test_laplace_and_importance_sampling_are_exact_on_linear_regression():
    """Its posterior is Gaussian: Newton's method takes one step, and all weights are equal."""
    data = wb.zoo.linear.simulate(5_000, seed=1)
    posterior = references.Posterior(wb.zoo.linear.model(), data)
    mode = posterior.mode(None)
    assert abs(references.laplace(mode) - wb.zoo.linear.log_evidence(data)) < 1e-7
    reference = references.importance(posterior, mode)
    assert abs(reference.value - wb.zoo.linear.log_evidence(data)) < 1e-7
    assert reference.error < 1e-7


def test_the_scales_of_the_horseshoe_are_integrated_out():
    """Closed form and quadrature against a sum over a fine grid of both scales."""
    sparse = np.array([0.3, -0.01, 0.02, 0.5, 0.04, -1.2, 0.1])
    point = np.concatenate([[0.1], np.zeros(4), sparse])
    step = 0.02
    scale = np.exp(np.arange(-25.0, 25.0, step))
    half_cauchy = 2 * scale / (np.pi * (1 + scale**2))
    heights = [
        np.sum(np.log(step * stats.norm.pdf(sparse[:, None], scale=tau * scale) @ half_cauchy))
        for tau in scale[600:1900:5]
    ]
    common = special.logsumexp(np.array(heights), b=5 * step * half_cauchy[600:1900:5])
    expected = common + stats.norm.logpdf(0.1, scale=2) + 4 * stats.t.logpdf(0, 3)
    assert abs(log_prior_of_slopes(point[None])[0] - expected) < 1e-6


def test_rows_are_chosen_by_name_or_by_how_they_begin():
    assert rows.choose(["seven-1e5"]) == ["seven-1e5"]
    assert len(rows.choose(["compare-linear"])) == 16
    with pytest.raises(SystemExit, match="no row nonsense"):
        rows.choose(["nonsense"])
    smaller = rows.smaller_rows("compare-linear-smc-1e5")
    assert smaller == ["compare-linear-smc-1e3", "compare-linear-smc-1e4"]
