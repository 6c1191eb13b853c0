"""The benchmarks of nested sampling: their exact values, and tiny runs of every command."""

import json
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special

import weighbridge as wb
from benchmarks.nested import accuracy, calibration, documents, growth, peers, problems
from benchmarks.nested.runs import in_turn, merge_files
from benchmarks.peers.measure import Limits
from weighbridge.estimators.nested.merging import weigh_points

pytestmark = pytest.mark.long
PLATEAU, HARD = "plateau, 2-D", "hard edge, 5-D"


def log_likelihood(problem, points):
    """At many points of a model with one vector of parameters."""
    with jax.enable_x64(True):
        of_all = jax.vmap(lambda x: problem.model.total_log_likelihood({"x": x}))
        return np.asarray(of_all(jnp.asarray(points)))


@pytest.mark.parametrize(("name", "volume"), [("phase transition, 10-D", 10.0), (HARD, 10.0)])
def test_evidences_of_round_densities_by_their_radius(name, volume):
    """Z = surface x integral of r^(d-1) L(r) / volume; less than 1e-5 lies in the box's corners."""
    problem = problems.build(name)
    size, step = problem.model.dimension, 1e-4
    radius = np.arange(step / 2, 9.0, step)
    points = np.zeros((len(radius), size))
    points[:, 0] = radius
    surface = math.log(2) + size / 2 * math.log(math.pi) - special.gammaln(size / 2)
    terms = (size - 1) * np.log(radius) + log_likelihood(problem, points)
    found = surface + special.logsumexp(terms) + math.log(step) - size * math.log(volume)
    assert abs(found - problem.log_evidence) < 1e-4


def test_evidences_in_two_dimensions_on_a_grid():
    axis = np.linspace(-8, 8, 1_601)
    grid = np.stack(np.meshgrid(axis, axis, indexing="ij"), axis=-1).reshape(-1, 2)
    problem = problems.build("correlated Gaussian, 2-D")
    prior = -0.5 * np.sum(grid**2, axis=1) - math.log(2 * math.pi)
    found = special.logsumexp(prior + log_likelihood(problem, grid)) + 2 * math.log(0.01)
    assert abs(found - problem.log_evidence) < 1e-6
    plateau = problems.build(PLATEAU)
    inside = np.random.default_rng(0).uniform(-1, 1, (200_000, 2))
    likelihood = np.exp(log_likelihood(plateau, inside))
    error = likelihood.std() / likelihood.mean() / math.sqrt(len(inside))
    assert abs(math.log(likelihood.mean()) - plateau.log_evidence) < 4 * error


@pytest.mark.parametrize("dimension", [10, 100])
def test_the_correlated_likelihood_is_a_normal_density(dimension):
    """Written as a chain of conditionals, it is that of the whole covariance matrix."""
    problem = problems.correlated(dimension)
    place = np.arange(dimension)
    covariance = problems.SCALE**2 * problems.CORRELATION ** np.abs(place[:, None] - place)
    points = np.random.default_rng(1).normal(size=(3, dimension))
    residual = points - problems.CENTRE
    square = np.sum(residual * np.linalg.solve(covariance, residual.T).T, axis=1)
    expected = -0.5 * (square + np.linalg.slogdet(2 * math.pi * covariance)[1])
    np.testing.assert_allclose(log_likelihood(problem, points), expected, rtol=1e-9)


def test_accuracy_goes_on_where_it_stopped_and_merges(tmp_path):
    one, other = tmp_path / "one", tmp_path / "other"
    arguments = ["--live=80", "--problems", PLATEAU, HARD]
    accuracy.main([*arguments, "--seeds=1", f"--output={one}"])
    before = json.loads((one / "nested_accuracy.json").read_text())
    accuracy.main([*arguments, "--seeds=2", f"--output={other}"])
    accuracy.main([*arguments, "--seeds=1", f"--output={one}", "--merge", str(other)])
    merged = json.loads((one / "nested_accuracy.json").read_text())
    assert [run["seed"] for run in merged[HARD]] == [1, 2]
    assert merged[PLATEAU][0] == before[PLATEAU][0]
    for runs in merged.values():
        assert all(abs(run["error"]) < 5 * run["stated"] for run in runs)
    text = (one / "nested_accuracy.md").read_text()
    assert "| all | 4 |" in text


def test_a_wrong_run_is_counted_and_named():
    good = {"seed": 1, "error": 0.1, "stated": 0.1, "flags": [], "seconds": 1.0}
    good |= {"calls": 10, "moves": 3}
    runs = [good, good | {"seed": 2, "error": -0.6}, good | {"seed": 3, "error": math.nan}]
    runs += [good | {"seed": 4, "error": 0.35, "flags": ["WALKERS_STUCK"]}]
    counted = accuracy.Counted(runs)
    assert (counted.right, counted.within_5) == (1, 2)
    assert (counted.wrong_unflagged, counted.far_unflagged) == (2, 2)
    text = accuracy.body({PLATEAU: runs}, "settings")
    assert "seed 2: -0.600, stated 0.100 (no flag)" in text
    assert "WALKERS_STUCK" in text


def test_problems_take_turns_until_their_share_is_used():
    made = []

    def run(key, seed):
        made.append((key, seed))
        return {"seed": seed, "seconds": 60.0 if key == "long" else 0.0}

    known = {"short": [{"seed": 2, "seconds": 0.0}]}
    turns = in_turn(["long", "short"], known, num_seeds=9, minutes=1.0, share=2.5, run=run)
    assert len(list(turns)) == len(made)
    assert made[:3] == [("long", 1), ("short", 1), ("long", 2)]  # seed 2 of the other is there
    assert len(known["long"]) == 4
    assert len(known["short"]) == 9


def test_merging_keeps_the_first_of_two_runs_with_one_seed(tmp_path):
    for folder, answer in (("a", 1.0), ("b", 2.0)):
        (tmp_path / folder).mkdir()
        runs = [{"seed": 1, "error": answer}, {"seed": 1 + int(answer), "error": answer}]
        (tmp_path / folder / "x.json").write_text(json.dumps({"p": runs}))
    merged = merge_files("x", [tmp_path / "b"], tmp_path / "a")
    assert [(run["seed"], run["error"]) for run in merged["p"]] == [(1, 1.0), (2, 1.0), (3, 2.0)]


def test_calibration_tells_good_runs_from_bad_ones(tmp_path):
    name = "3-D normal in a box"
    calibration.main(["--live=80", "--seeds=2", f"--output={tmp_path}", "--problems", name])
    known = json.loads((tmp_path / "nested_calibration.json").read_text())
    bad = known[f"{name} | one move"]
    assert sum(run["calls"] for run in bad) < sum(
        run["calls"] for run in known[f"{name} | default"]
    )
    text = (tmp_path / "nested_calibration.md").read_text()
    assert "(goal: 95 %)" in text


def test_the_points_of_the_growth_benchmark_have_their_evidence():
    """Weighed alone, and as two results that are merged."""
    z = []
    for seed in range(8):
        points, exact = growth.made_points(10_000, seed)
        weighed = weigh_points(points, "exponential", seed)
        z.append((weighed.log_evidence - exact) / weighed.std_error)
    assert abs(np.mean(z)) < 3.5 / math.sqrt(len(z))
    assert abs(growth.merge(10_000)["z"]) < 4


def test_growth_on_a_toy_size(tmp_path, monkeypatch):
    monkeypatch.setattr(growth, "FEW_DIMENSIONS", 2)
    record = growth.run(80, 2)
    assert abs(record["z"]) < 4
    text = growth.body({"live 125": record, "weigh 10000": growth.weigh(10_000)})
    assert "microseconds a call" in text
    assert "bytes a point" in text


def test_methods_of_the_documents_on_a_toy_size(tmp_path, monkeypatch):
    """What is not there leaves its message in the table."""

    def refuse():
        raise wb.MethodError("This method is not there.")

    monkeypatch.setitem(documents.METHODS, "seq", documents.Method("refusing", refuse))
    arguments = ["--models", "linear", "--methods", "sgais", "seq", "--sizes", "1000"]
    documents.main([*arguments, f"--output={tmp_path}"])
    text = (tmp_path / "nested_documents.md").read_text()
    assert "This method is not there." in text
    record = json.loads((tmp_path / "nested_documents.json").read_text())["linear/1000/sgais"]
    assert record["exact"] == wb.zoo.linear.log_evidence(wb.zoo.linear.simulate(1_000, seed=1))
    assert (tmp_path / "nested_documents-linear.png").stat().st_size > 1_000


def test_figure_a1_on_a_toy_size(tmp_path):
    arguments = ["--agreement", "--step=1000", "--runs=2", "--agreeing", "ais", "sgais"]
    documents.main([*arguments, f"--output={tmp_path}"])
    assert "of 1 sizes" in (tmp_path / "nested_agreement.md").read_text()
    assert (tmp_path / "nested_agreement.png").stat().st_size > 1_000


def test_peers_get_more_live_points_or_are_extrapolated(monkeypatch):
    """A tool whose error falls as 1/sqrt(live points), at one second for the recommended ones."""

    def pretend(name, problem, file, seeds, limits, effort):
        error, spent = 0.3 / math.sqrt(effort), 1.0 * effort
        run = {"std_error": error, "cpu_seconds": spent, "calls": int(1_000 * effort)}
        run |= {"log_evidence": -1.7, "flags": None, "seed": 0}
        return {"effort": effort, "runs": [run, run], "over": None, "failure": None}

    monkeypatch.setattr(peers, "run_tool", pretend)
    long = peers.measure("dynesty", "shells-2", None, 2, Limits(60.0, math.inf, 0))
    assert long["effort"] == pytest.approx(9.0)
    short = peers.measure("dynesty", "shells-2", None, 2, Limits(5.0, math.inf, 0))
    assert short["effort"] == 1.0
    for record in (long, short):
        assert peers.seconds(record) == pytest.approx(9.0)
        assert peers.calls(record) == pytest.approx(9_000)
    assert "*" in peers.row(short, -1.7)[-2]
    assert "*" not in peers.row(long, -1.7)[-2]
    ours = pretend("ours_nested", "shells-2", None, 2, None, 9.0)
    for run in ours["runs"]:
        run["cpu_seconds"] = 3.0
    cells, ratio = peers.goals("shells-2", {"ours_nested": ours, "dynesty": long})
    assert ratio == pytest.approx(3.0)
    assert "dynesty" in cells[2]


def test_a_peer_over_the_limit_is_tried_with_fewer_live_points(monkeypatch):
    def pretend(name, problem, file, seeds, limits, effort):
        run = {"std_error": 0.2, "cpu_seconds": 5.0, "calls": 100, "log_evidence": 0.0}
        runs = [run | {"flags": None}] if effort < 0.1 else []
        return {"effort": effort, "runs": runs, "over": 10.0, "failure": None}

    monkeypatch.setattr(peers, "run_tool", pretend)
    record = peers.measure("jaxns", "shells-2", None, 1, Limits(10.0, math.inf, 0))
    assert record["effort"] == 0.0625
    assert peers.seconds(record) == pytest.approx(20.0)
