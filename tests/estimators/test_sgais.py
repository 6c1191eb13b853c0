"""Anchored SGAIS against exact evidence, and as a program: no lost row, key reused or retrace."""

import dataclasses
import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from scipy.special import gammaln, logsumexp

import weighbridge as wb
from weighbridge.estimators.annealing.moves.kernels import over_islands
from weighbridge.estimators.bridging.bridge import Bridged
from weighbridge.estimators.sgais import run as sgais_run
from weighbridge.estimators.sgais.anchored_terms import Terms
from weighbridge.estimators.sgais.chunk_stage import ChunkRows
from weighbridge.estimators.sgais.preparation import (
    CHUNK,
    EXACT_ROWS,
    LATER_TURNS,
    PAST,
    PROBES,
    PURPOSES,
    Preparation,
)
from weighbridge.models.targets import anchored as anchor_module
from weighbridge.models.targets.density import Target
from weighbridge.models.targets.rows import Rows

# With 16 islands z is a Student-t of 15 degrees, shrunk by sqrt(13/15): beyond 5 in one case of
# 12,000.
BOUND = 5.0
# From the first test on: the programs are lowered only once.
pytestmark = pytest.mark.usefixtures("compiled")
LINEAR = wb.zoo.linear.model(2)
DEFAULT, FEW = wb.SGAIS(), wb.SGAIS(num_particles=16)
SEEDS = range(3)


def linear_data(num=3001, seed=3):
    """The last row is an outlier: lost or doubled it would be seen."""
    data = wb.zoo.linear.simulate(num, num_features=2, seed=seed)
    data["y"][-1] += 6.0
    return data


def part(data, start, stop):
    return jax.tree_util.tree_map(lambda leaf: leaf[start:stop], data)


def pieces(data, size):
    num = len(jax.tree_util.tree_leaves(data)[0])
    return (part(data, start, start + size) for start in range(0, num, size))


def same_numbers(first, second):
    assert first.log_evidence == second.log_evidence
    assert first.std_error == second.std_error
    for name in ("path_log_evidence", "path_error", "bridge_log_evidence", "noise_bias"):
        assert first.diagnostics[name] == second.diagnostics[name]
    np.testing.assert_array_equal(first.log_weights, second.log_weights)
    for name in first.samples:
        np.testing.assert_array_equal(first.samples[name], second.samples[name])
    for name in first.trace:
        np.testing.assert_array_equal(first.trace[name], second.trace[name])


def check_both(result, exact, bound=BOUND):
    """Path and bridge, each within its own error."""
    found = result.diagnostics
    for name in ("path", "bridge"):
        error = found[f"{name}_log_evidence"] - exact
        assert abs(error) < bound * found[f"{name}_error"], (name, error, found[f"{name}_error"])
    answer = found["answer"]
    assert result.log_evidence == found[f"{answer}_log_evidence"]
    assert result.std_error == found[f"{answer}_error"]


# --- linear regression: the bridge is exact, the path within its error -----------------------


@pytest.mark.parametrize("seed", SEEDS)
def test_linear_regression_is_exact(seed):
    data = linear_data()
    result = wb.evidence(LINEAR, data, seed=seed)
    exact = wb.zoo.linear.log_evidence(data)
    assert abs(result.log_evidence - exact) < 1e-4
    assert result.std_error < 1e-4
    found = result.diagnostics
    assert abs(found["path_log_evidence"] - exact) < BOUND * found["path_error"]
    assert found["path_error"] < 0.5
    assert (found["answer"], found["anchor_order"]) == ("bridge", 2)
    assert result.flags == ()
    assert result.method == "sgais"
    np.testing.assert_array_equal(result.trace.rows, [256, 512, 1024, 2048, 3001])
    path = wb.zoo.linear.log_evidence_path(data, result.trace.rows.astype(int))
    z = (result.trace.log_evidence - path) / result.trace.std_error
    assert np.abs(z).max() < BOUND, "all along the way"


CHUNKS = {
    "fixed": (dataclasses.replace(DEFAULT, chunk_size=200), None),
    "one more than fits": (dataclasses.replace(DEFAULT, chunk_size=3000), None),
    "beyond a batch": (dataclasses.replace(DEFAULT, chunk_size=100_000), None),
    "stream": (DEFAULT, 170),
    "small reservoir": (dataclasses.replace(DEFAULT, reservoir=1500), 1000),
    "smaller than the rows that are always used": (dataclasses.replace(DEFAULT, reservoir=700), 9),
    "smaller than a chunk": (dataclasses.replace(DEFAULT, reservoir=100), 500),
}


@pytest.mark.parametrize("name", CHUNKS)
def test_however_rows_come_the_answer_is_one(name):
    data = linear_data()
    method, size = CHUNKS[name]
    given = data if size is None else pieces(data, size)
    result = wb.evidence(LINEAR, given, method, seed=1)
    exact = wb.zoo.linear.log_evidence(data)
    without = wb.zoo.linear.log_evidence(part(data, 0, 3000))
    assert abs(result.log_evidence - exact) < 1e-4
    found = result.diagnostics
    assert abs(found["path_log_evidence"] - exact) < BOUND * found["path_error"]
    assert abs(exact - without) > 2 * BOUND * found["path_error"]
    assert result.num_observations == result.trace.rows[-1] == 3001
    if size is not None:
        np.testing.assert_array_equal(result.trace.rows, [*range(500, 3001, 500), 3001])
        assert found["rows_kept"] == min(method.reservoir, 3001)
    elif name == "fixed":
        np.testing.assert_array_equal(result.trace.rows, [*range(200, 3001, 200), 3001])


def test_arrays_pieces_and_updates_give_the_same_numbers():
    data = linear_data(1503)
    method = dataclasses.replace(DEFAULT, chunk_size=500)
    whole = wb.evidence(LINEAR, data, method, seed=3)
    same_numbers(whole, wb.evidence(LINEAR, pieces(data, 7), method, seed=3))
    online = wb.Online(LINEAR, method, seed=3)
    for chunk in pieces(data, 500):
        online.update(chunk)
    same_numbers(whole, online.result())


def test_row_weights_count_repeated_rows():
    """In chunks that are all used and in chunks that are anchored; weight 0 counts for nothing."""
    data = linear_data(1600)
    weight = np.tile([1.0, 3.0, 0.0, 2.0], 400)
    weight[512:768] = 0.0  # nothing in a whole chunk
    repeated = {name: np.repeat(leaf, weight.astype(int), axis=0) for name, leaf in data.items()}
    exact = wb.zoo.linear.log_evidence(repeated)
    data["y"][weight == 0] = 1e6
    method = dataclasses.replace(DEFAULT, chunk_size=256)
    for seed, chosen in zip(SEEDS, (method, DEFAULT, dataclasses.replace(method, reservoir=300))):
        given = {**data, "weight": weight}
        if chosen.reservoir == 300:
            given = pieces(given, 100)
        result = wb.evidence(LINEAR, given, chosen, seed=seed)
        assert result.num_observations == weight.sum()
        assert abs(result.log_evidence - exact) < 1e-4
        found = result.diagnostics
        assert abs(found["path_log_evidence"] - exact) < BOUND * found["path_error"]
    assert abs(exact - wb.zoo.linear.log_evidence(linear_data(1600))) > 100


@pytest.mark.parametrize("num_islands", [1, 3])
def test_few_islands_give_an_answer_without_an_error(num_islands):
    """Beyond the rows that are all used, so that anchors and batches are there too."""
    data = linear_data(3000)
    method = dataclasses.replace(DEFAULT, num_islands=num_islands)
    result = wb.evidence(LINEAR, data, method, seed=1)
    assert math.isnan(result.std_error)
    assert wb.Status.ERROR_UNKNOWN in result.flags
    # What an island errs by is known from many of them.
    several = wb.evidence(LINEAR, data, DEFAULT, seed=1).diagnostics
    error = several["path_error"] * math.sqrt(len(several["island_log_evidence"]) / num_islands)
    assert abs(result.log_evidence - wb.zoo.linear.log_evidence(data)) < BOUND * error


def test_seeds():
    data = linear_data(1200)
    first = wb.evidence(LINEAR, data, seed=5)
    same_numbers(first, wb.evidence(LINEAR, data, seed=5))
    other = wb.evidence(LINEAR, data, seed=6)
    assert first.diagnostics["path_log_evidence"] != other.diagnostics["path_log_evidence"]
    islands = np.concatenate([r.diagnostics["island_log_evidence"] for r in (first, other)])
    assert len(np.unique(islands)) == 32, "no island repeats another"
    draws = np.concatenate([r.samples["b"] for r in (first, other)])
    assert len(np.unique(draws)) > 0.7 * len(draws)


@pytest.mark.parametrize("seen", [0, 300, 1024, 2500])
@pytest.mark.parametrize("reservoir", [10_000, 400], ids=["all rows kept", "a reservoir"])
def test_moves_see_every_row_once(seen, reservoir):
    """The density at any power is prior, past and chunk: exact here, whatever the batches are."""
    data, power = linear_data(2600), 0.3
    method = dataclasses.replace(DEFAULT, reservoir=reservoir)
    run = method.start(LINEAR, seed=0)
    weight = np.resize([0.0, 1.0, 2.0, 1.0], 2600)
    for start, stop in itertools.pairwise(sorted({0, min(seen, 256), min(seen, 1024), seen})):
        run.absorb(part(data, start, stop), weight[start:stop])
    chunk = part(data, seen, 2600)
    with jax.enable_x64(True):
        new = part((chunk, weight[seen:]), 0, 500)
        path = run.preparation().stage(run.ledger.cloud, ChunkRows(*new)).path
        position = np.asarray(run.ledger.cloud.position)[:, :3]
        found = over_islands(lambda target, _, u: target(u), position, path=path, power=power)
    x, y = data["x"], data["y"]
    for place, value in zip(position.reshape(-1, 3), np.asarray(found).ravel()):
        parameters = LINEAR.unravel(place)
        away = y - x @ parameters["w"] - parameters["b"]
        rows = weight * (-0.5 * away**2 - 0.5 * math.log(2 * math.pi))
        prior = -0.5 * np.sum(place**2) - 1.5 * math.log(2 * math.pi)
        expected = prior + rows[:seen].sum() + power * rows[seen : seen + len(new[1])].sum()
        assert value == pytest.approx(expected, rel=1e-10)


def test_mini_batches_never_repeat():
    """Seeds, chunks, islands and purposes: all have rows of their own."""
    drawn = []
    for seed, chunk, first_island in itertools.product((0, 1), (1, 2), (0, 16)):
        run = DEFAULT.start(LINEAR, seed=seed, first_island=first_island)
        run.ledger.num_chunks = chunk
        for purpose, turn in itertools.product(PURPOSES, range(3)):
            generators = run.preparation().generators(purpose, turn)
            drawn += [tuple(g.integers(0, 10**6, 8)) for g in generators]
    assert len(set(drawn)) == len(drawn) == 8 * 5 * 3 * 16


def test_an_anchor_that_is_set_anew_gets_rows_of_its_own(monkeypatch):
    """Batches drawn again, and probes as particles move, are not those of before."""
    names = []

    def generators(self, purpose, turn, original=Preparation.generators):
        names.append((self.num_chunks, purpose, turn))
        return original(self, purpose, turn)

    monkeypatch.setattr(Preparation, "generators", generators)
    monkeypatch.setattr(Terms, "watch", lambda self, estimate, probes, **_: (estimate.noise, True))
    data = touchy_data(2_000)
    data["y"][1_500:] += 1.0  # another opinion, which takes several steps to come to
    run = wb.SGAIS(num_particles=8, num_islands=4).start(TOUCHY, seed=0)
    for first in range(0, 2_000, 500):
        run.absorb(part(data, first, first + 500), np.ones(500))
    followed = [name for name in names if name[2] >= LATER_TURNS]
    assert {purpose for _, purpose, _ in followed} == {PAST, CHUNK, PROBES}
    assert len(set(names)) == len(names)


# --- a model in one dimension that is not quadratic: its evidence by quadrature ----------------


def touchy(p, row):
    """Student-t noise, and not a number for rows that are out of range."""
    height = -2.0 * jnp.log1p((row["y"] - p["mu"]) ** 2 / 3.0)
    return jnp.where(row["y"] < 1e3, height, jnp.nan)


TOUCHY = wb.Model({"mu": dist.Normal(0.0, 1.0)}, touchy)
SMALL = wb.SGAIS(num_particles=16, batch_size=512)


def touchy_data(num, seed=1):
    return {"y": 0.4 + np.random.default_rng(seed).standard_t(3.0, num)}


def by_quadrature(log_density, low, high, num=4001):
    grid = np.linspace(low, high, num)
    return logsumexp([log_density(point) for point in grid]) + math.log(grid[1] - grid[0])


def touchy_evidence(data):
    def log_density(mu):
        prior = -0.5 * mu**2 - 0.5 * math.log(2 * math.pi)
        return prior - 2.0 * np.log1p((data["y"] - mu) ** 2 / 3.0).sum()

    return by_quadrature(log_density, 0.0, 0.8)


@pytest.mark.parametrize("reservoir", [None, 600], ids=["all rows kept", "a reservoir of 600"])
def test_a_curved_model_is_within_its_error(reservoir):
    data = touchy_data(4000)
    exact = touchy_evidence(data)
    for seed in range(5):
        method, given = SMALL, data
        if reservoir is not None:
            method, given = dataclasses.replace(SMALL, reservoir=600), pieces(data, 500)
        result = wb.evidence(TOUCHY, given, method, seed=seed)
        check_both(result, exact)
        assert result.std_error < 0.05
        assert result.flags == ()


def test_a_batch_four_times_larger_moves_the_answer_by_less_than_its_error():
    data = touchy_data(3000)
    small, large = (
        wb.evidence(TOUCHY, data, dataclasses.replace(SMALL, batch_size=size), seed=0)
        for size in (128, 512)
    )
    for name in ("path", "bridge"):
        apart = [r.diagnostics[f"{name}_log_evidence"] for r in (small, large)]
        errors = [r.diagnostics[f"{name}_error"] for r in (small, large)]
        assert abs(apart[0] - apart[1]) < 3 * max(errors)


@pytest.mark.parametrize("reservoir", [10_000, 900], ids=["all rows kept", "a reservoir"])
def test_a_saved_run_goes_on_bit_for_bit(reservoir, tmp_path):
    """Also once there is an anchor, and wherever it is looked at on the way."""
    data, path = touchy_data(3100), tmp_path / "run.safetensors"
    method = dataclasses.replace(SMALL, reservoir=reservoir)
    cuts = [0, 400, 1500, 1900, 2500, 3100]
    whole = wb.Online(TOUCHY, method, seed=7)
    resumed = wb.Online(TOUCHY, method, seed=7)
    for number, (start, stop) in enumerate(itertools.pairwise(cuts)):
        chunk = part(data, start, stop)
        assert whole.update(chunk).log_evidence == resumed.update(chunk).log_evidence
        resumed.result()
        resumed.save(path)
        resumed = wb.Online.load(path, TOUCHY, method)
        assert resumed.num_observations == stop
        if number in (1, 3):
            same_numbers(whole.result(), resumed.result())
    result = resumed.result()
    same_numbers(whole.result(), result)
    assert result.diagnostics["anchor_order"] == 2
    assert result.diagnostics["rows_kept"] == min(reservoir, 3100)
    check_both(result, touchy_evidence(data))


def test_a_chunk_that_fails_leaves_the_run_as_it_was():
    """While all rows are used, and once there is an anchor, whose sums it would spoil."""
    data, bad = touchy_data(2000), {"y": np.array([0.1, 1e9, 0.2])}
    online, untouched = (wb.Online(TOUCHY, SMALL, seed=2) for _ in range(2))
    with pytest.raises(wb.ModelError, match=r"NaN.*row 1 "):
        online.update(bad)
    for start, stop in ((0, 300), (300, 1500), (1500, 2000)):
        online.update(part(data, start, stop))
        untouched.update(part(data, start, stop))
        before = online.result()
        with pytest.raises(wb.ModelError, match="NaN"):
            online.update(bad)
        same_numbers(before, online.result())
        assert online.num_observations == stop
    assert stop > EXACT_ROWS
    same_numbers(untouched.result(), online.result())
    check_both(online.result(), touchy_evidence(data))


def test_other_data_run_the_same_programs(compiled):
    """Other rows, more or fewer, whole or in updates, another prior: nothing is compiled.

    But for the bridge on all rows: once for each doubling of them, here up to 4,096 and 8,192.
    """
    wb.evidence(TOUCHY, touchy_data(5000), SMALL, seed=0)
    wb.evidence(TOUCHY, touchy_data(3000), SMALL, seed=0)
    wb.evidence(TOUCHY, touchy_data(300), SMALL, seed=0)
    num_compiled = len(compiled)
    assert num_compiled > 0, "the listener hears"
    wb.evidence(TOUCHY, touchy_data(2222, seed=5), SMALL, seed=1)
    wb.evidence(TOUCHY, touchy_data(11, seed=6), SMALL, seed=1)
    other = wb.Model({"mu": dist.Normal(0.5, 3.0)}, touchy)
    method = dataclasses.replace(SMALL, reservoir=900, chunk_size=333, noise=0.02, target_ess=0.6)
    wb.evidence(other, pieces(touchy_data(3456, seed=7), 100), method, seed=2)
    online = wb.Online(TOUCHY, SMALL, seed=4)
    for start, stop in itertools.pairwise([0, 1, 50, 1024, 1025, 1700, 5000, 5001]):
        online.update(part(touchy_data(5001), start, stop))
        online.result()
    assert compiled[num_compiled:] == []


# --- where it must fail, it says so --------------------------------------------------------------


def squares(p, row):
    """Two modes, at +-1, that no relabelling brings together."""
    return -0.5 * (row["y"] - row["x"] * p["theta"] ** 2) ** 2


def two_modes(num_rows):
    """Rows with two modes, their model, and the exact evidence."""
    model = wb.Model({"theta": dist.Normal(0.0, 1.0)}, squares)
    generator = np.random.default_rng(0)
    x = generator.normal(size=3000)
    data = part({"x": x, "y": x + generator.normal(size=3000)}, 0, num_rows)

    def log_density(theta):
        prior = -0.5 * theta**2 - 0.5 * math.log(2 * math.pi)
        return prior - 0.5 * np.sum((data["y"] - data["x"] * theta**2) ** 2)

    return model, data, by_quadrature(log_density, 0.4, 1.6) + math.log(2)


def test_batches_that_are_too_noisy_are_told_and_are_in_the_error():
    """An anchor between two modes, and batches of 64 rows for 3,000: noise of hundreds of nats."""
    model, data, exact = two_modes(3000)
    method = wb.SGAIS(num_particles=16, batch_size=64)
    for seed in SEEDS:
        result = wb.evidence(model, data, method, seed=seed)
        assert wb.Status.NOISY in result.flags
        assert result.diagnostics["answer"] == "path"
        assert abs(result.log_evidence - exact) < result.claimed_error
        assert result.claimed_error > result.diagnostics["noise_bias"] > 1.0
        # An error of hundreds of nats says nothing, and noise may have either sign.
        assert (result.claimed_error > 10.0) == (wb.Status.HUGE_ERROR in result.flags)
        assert not result.is_lower_bound
        assert result.diagnostics["largest_noise"] > method.noise
    # The same posterior, while all rows are used: right, and no flag.
    model, few, exact = two_modes(1000)
    result = wb.evidence(model, few, method, seed=0)
    assert abs(result.log_evidence - exact) < BOUND * result.std_error
    assert result.flags == ()


def test_by_default_all_rows_are_used_where_no_batch_is_of_use(monkeypatch):
    """But not for the small chunks of a stream, each of which would take all that came before."""
    monkeypatch.setattr(sgais_run, "LARGEST_BATCH", 64)
    model, data, exact = two_modes(3000)
    method = wb.SGAIS(num_particles=16)
    for seed in SEEDS:
        result = wb.evidence(model, data, method, seed=seed)
        assert abs(result.log_evidence - exact) < BOUND * result.std_error
        assert result.std_error < 1.0
        assert result.flags == ()
    streamed = wb.evidence(model, data, dataclasses.replace(method, chunk_size=100), seed=0)
    # Batches that follow nothing may lead all particles into one mode, from which a bridge holds.
    assert wb.Status.NOISY in streamed.flags
    assert (
        abs(streamed.diagnostics["path_log_evidence"] - exact) < streamed.diagnostics["path_error"]
    )


# --- other kernels ------------------------------------------------------------------------------


@pytest.mark.long
def test_a_kernel_on_anchored_batches_is_not_heated(monkeypatch):
    """Control variates: what heats the published algorithm is not there."""
    data = linear_data(4000)
    exact = wb.zoo.linear.log_evidence(data)
    kernel = wb.SGHMC(step_size=0.1, friction=0.2)
    plain = wb.PublishedSGAIS(num_particles=16, kernel=kernel, batch_size=400)
    published = wb.evidence(LINEAR, data, plain, seed=0)
    paths, annealed = [], sgais_run.anneal

    def spy(*args, **kwargs):
        paths.append(args[2](0))
        return annealed(*args, **kwargs)

    monkeypatch.setattr(sgais_run, "anneal", spy)
    method = wb.SGAIS(num_particles=16, kernel=kernel, batch_size=4000)
    result = wb.evidence(LINEAR, data, method, seed=0)
    assert published.trace.temperature[-1] > 1.5
    assert abs(result.trace.temperature[-1] - 1) < 0.2 * (published.trace.temperature[-1] - 1)
    heat = result.diagnostics["heating_bias"], published.diagnostics["heating_bias"]
    assert abs(heat[0]) < 0.3 * abs(heat[1])
    assert abs(result.log_evidence - exact) < 1e-4
    path = result.diagnostics["path_log_evidence"]
    assert abs(path - exact) < BOUND * result.diagnostics["path_error"]
    assert result.diagnostics["path_error"] < published.std_error
    # Every step of every island has a batch of its own.
    (past,) = paths[-1].past
    num_batches, size = past.batch_sums.value.shape[1], int(past.size)
    assert num_batches == 20
    rows = np.asarray(past.rows.values["y"])[:, : num_batches * size].reshape(-1, size)
    assert len({frozenset(batch) for batch in rows}) == 16 * 20


# --- softmax regression -----------------------------------------------------------------------


@pytest.mark.long
def test_softmax_regression_agrees_with_smc():
    model = wb.zoo.logistic.model(1, 3)
    data = wb.zoo.logistic.simulate(200, num_features=1, num_classes=3, seed=1)
    result = wb.evidence(model, data, FEW, seed=0)
    smc = wb.evidence(model, data, wb.SMC(num_islands=16, num_particles=16), seed=1)
    found = result.diagnostics
    assert found["answer"] == "bridge"
    for name in ("path", "bridge"):
        allowed = BOUND * math.hypot(found[f"{name}_error"], smc.std_error)
        assert abs(found[f"{name}_log_evidence"] - smc.log_evidence) < allowed
    assert max(result.std_error, smc.std_error) < 0.05
    assert result.flags == ()


# --- mixtures -----------------------------------------------------------------------------------

MIXTURE = wb.zoo.mixture.model(2, 1)


def log_assigned(values, states, num_components):
    """Log density of the rows and each assignment of them, but for the weights' constant."""
    total = np.zeros(len(states))
    for component in range(num_components):
        inside = states == component
        count, first, second = inside.sum(axis=1), inside @ values, inside @ values**2
        # mu ~ N(0, 4 s2), s2 ~ InverseGamma(1, 1), weights ~ Dirichlet(1, ..., 1)
        precision, shape = 0.25 + count, 1 + 0.5 * count
        rate = 1 + 0.5 * (second - first**2 / precision)
        total = total + gammaln(count + 1) + gammaln(shape) - shape * np.log(rate)
        total = total + 0.5 * np.log(0.25 / precision) - 0.5 * count * math.log(2 * math.pi)
    return total + gammaln(num_components) - gammaln(len(values) + num_components)


def exact_mixture(values):
    """Evidence of two components, by all assignments: each has conjugate components."""
    states = (np.arange(2 ** len(values))[:, None] >> np.arange(len(values))) & 1
    return float(logsumexp(log_assigned(values, states, 2)))


@pytest.mark.long
@pytest.mark.parametrize("overlap", [False, True], ids=["clear", "overlapping"])
def test_labellings_of_a_mixture_are_counted_once(overlap):
    """Two components of two clusters, or of three rows, where labellings overlap."""
    data = wb.zoo.mixture.simulate(14, num_components=2, num_features=1, seed=1)
    if overlap:
        data = np.array([[-0.3], [0.5], [0.4]])
    exact = exact_mixture(data[:, 0])
    results = [wb.evidence(MIXTURE, data, FEW, seed=seed) for seed in range(4)]
    for result in results:
        check_both(result, exact)
    bridged = [r.diagnostics["bridge_log_evidence"] for r in results]
    assert abs(np.mean(bridged) - exact) < 0.3 * math.log(2)


def partitions(num):
    """All ways to put rows into blocks: each row's block, numbered in order of appearance."""
    found = [[0]]
    for _ in range(num - 1):
        found = [[*states, block] for states in found for block in range(max(states) + 2)]
    return np.array(found)


def exact_large_mixture(values, num_components):
    """Evidence of many components, by all partitions of the rows into at most so many blocks."""
    states = partitions(len(values))
    used = states.max(axis=1) + 1
    states, used = states[used <= num_components], used[used <= num_components]
    # Blocks are given to different components in K! / (K - used)! ways.
    ways = gammaln(num_components + 1) - gammaln(num_components - used + 1)
    return float(logsumexp(log_assigned(values, states, num_components) + ways))


def test_two_ways_to_the_exact_evidence_agree():
    data = wb.zoo.mixture.simulate(8, num_components=2, num_features=1, seed=1)[:, 0]
    assert exact_large_mixture(data, 2) == pytest.approx(exact_mixture(data), abs=1e-9)


@pytest.mark.long
def test_seven_components_of_three_clusters():
    """Most components are empty, so that labellings overlap at any number of rows."""
    data = np.array([-3.2, -3.0, -2.7, 0.1, 0.3, -0.2, 2.9, 3.3, 3.0])[:, None]
    exact = exact_large_mixture(data[:, 0], 7)
    method = wb.SGAIS(num_particles=32)
    for seed in range(3):
        result = wb.evidence(wb.zoo.mixture.model(7, 1), data, method, seed=seed)
        assert abs(result.log_evidence - exact) < BOUND * result.std_error, seed
        assert result.std_error < 0.5


@pytest.mark.long
def test_a_mixture_on_anchored_batches():
    data = wb.zoo.mixture.simulate(1500, num_components=2, num_features=1, seed=1)
    truth = wb.zoo.mixture.simulate_parameters(num_components=2, num_features=1, seed=1)
    # The modes are far apart: importance sampling at one of them, times two.
    exact, error = importance_sampling(MIXTURE, data, MIXTURE.ravel(truth))
    assert error < 0.02
    result = wb.evidence(MIXTURE, data, FEW, seed=0)
    found = result.diagnostics
    for name in ("path", "bridge"):
        allowed = BOUND * math.hypot(found[f"{name}_error"], error)
        assert abs(found[f"{name}_log_evidence"] - exact - math.log(2)) < allowed
    assert result.std_error < 0.1
    assert found["anchor_order"] == 2


def importance_sampling(model, data, start, num=1000, freedom=8):
    """At the mode near a point, from a Student-t: the log evidence and its error."""
    with jax.enable_x64(True):
        target = Target(model, (Rows(data, np.ones(len(data))),))
        slopes = jax.jit(lambda u: (jax.grad(target)(u), jax.hessian(target)(u)))
        mode = np.array(start)
        for _ in range(20):
            gradient, hessian = map(np.asarray, slopes(mode))
            mode = mode - np.linalg.solve(hessian, gradient)
        assert np.abs(gradient).max() < 1e-6
        root = np.linalg.cholesky(np.linalg.inv(-hessian))
        generator = np.random.default_rng(0)
        squared = generator.chisquare(freedom, (num, 1)) / freedom
        draws = generator.standard_normal((num, len(mode))) / np.sqrt(squared)
        half = 0.5 * (freedom + len(mode))
        log_proposal = gammaln(half) - gammaln(0.5 * freedom)
        log_proposal = log_proposal - 0.5 * len(mode) * math.log(freedom * math.pi)
        log_proposal = log_proposal - half * np.log1p(np.sum(draws**2, axis=1) / freedom)
        log_proposal = log_proposal - np.sum(np.log(np.diag(root)))
        heights = jax.jit(lambda u: jax.lax.map(target, u, batch_size=50))(mode + draws @ root.T)
    log_ratio = np.asarray(heights) - log_proposal
    ratio = np.exp(log_ratio - log_ratio.max())
    return logsumexp(log_ratio) - math.log(num), ratio.std() / ratio.mean() / math.sqrt(num)


# --- the rule for the answer -------------------------------------------------------------------

BRIDGED = Bridged(-100.0, 0.01, 0.2, 0.3, 0.9, False)
LOST, SHORT = wb.Status.PATH_LOST, wb.Status.BRIDGE_SHORT


@pytest.mark.parametrize(
    ("changes", "path", "verdict"),
    [
        ({}, (-100.2, 0.1), (True, None)),
        ({}, (-99.8, 0.1), (True, None)),
        ({}, (-100.0, 1e-6), (True, None)),  # the smaller error decides nothing
        ({}, (-102.0, 0.1), (True, LOST)),
        ({}, (-98.0, 0.1), (False, SHORT)),
        ({"std_error": 1.0}, (-98.0, 0.1), (True, None)),
        ({"khat_proposal": 0.6}, (-100.0, 0.1), (False, None)),
        ({"khat_posterior": 0.6}, (-100.0, 0.1), (False, None)),
        ({"khat_posterior": 0.6}, (-110.0, 0.1), (True, LOST)),
        ({"khat_posterior": 0.8}, (-110.0, 0.1), (False, None)),
        ({"khat_posterior": 0.6}, (-90.0, 0.1), (False, None)),
        ({"khat_proposal": math.inf}, (-100.0, 0.1), (False, None)),
        ({"khat_proposal": 0.6, "is_even": True}, (-100.1, 0.1), (True, None)),
        ({"khat_proposal": 0.6, "is_even": True}, (-102.0, 0.1), (True, LOST)),
        ({"khat_proposal": 0.6, "is_even": True}, (-98.0, 0.1), (False, SHORT)),
    ],
)
def test_which_estimate_is_the_answer(changes, path, verdict):
    assert BRIDGED._replace(**changes).judge(*path) == verdict


@pytest.mark.parametrize("path", [-100.3, -99.7])
def test_a_path_of_unknown_error_is_no_reason_for_caution(path):
    assert BRIDGED.judge(path, math.nan) == (True, None)


# --- first order (last: programs know their order) ---------------------------------------------


@pytest.mark.long
def test_anchors_of_first_order(monkeypatch, tmp_path):
    """As above a few hundred dimensions: no curvature, more noise, and still right."""
    jax.clear_caches()
    monkeypatch.setattr(anchor_module, "FIRST_ORDER_ABOVE", 0)
    monkeypatch.setattr(sgais_run, "FIRST_ORDER_ABOVE", 0)
    data, path = touchy_data(2000), tmp_path / "run.safetensors"
    online = wb.Online(TOUCHY, SMALL, seed=0)
    online.update(part(data, 0, 1600))
    online.save(path)
    resumed = wb.Online.load(path, TOUCHY, SMALL)
    for run in (online, resumed):
        run.update(part(data, 1600, 2000))
    result = resumed.result()
    same_numbers(online.result(), result)
    assert result.diagnostics["anchor_order"] == 1
    exact = touchy_evidence(data)
    found = result.diagnostics
    assert abs(found["path_log_evidence"] - exact) < BOUND * found["path_error"]
    assert abs(result.log_evidence - exact) < BOUND * result.std_error
    jax.clear_caches()
