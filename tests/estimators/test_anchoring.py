"""Terms of a stream: every row once, batches as large as their noise asks, anchors that move."""

import dataclasses
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import weighbridge as wb
from weighbridge.data.reservoir import Reservoir
from weighbridge.estimators.batch_noise import NOISELESS, SMALLEST_BATCH
from weighbridge.estimators.sgais import anchored_terms, anchoring
from weighbridge.estimators.sgais.anchored_terms import Terms
from weighbridge.estimators.sgais.anchoring import (
    SUM_ROWS,
    Anchor,
    in_blocks,
    set_anchor,
    sums_of,
    total,
)
from weighbridge.models.targets.anchored import Sums
from weighbridge.models.targets.span import SPAN_BLOCK

MODEL = wb.zoo.logistic.model(1, 2)
NUM_ROWS = 6000
DATA = wb.zoo.logistic.simulate(NUM_ROWS, num_features=1, num_classes=2, seed=1)
WEIGHT = np.resize([1.0, 2.0, 0.0, 1.0, 0.5], NUM_ROWS)
POSITION = np.array([0.3, -0.2, 0.1, 0.4])
# As far apart as the posterior of some ten rows: much is left to batches.
PROBES = POSITION + 0.3 * np.random.default_rng(1).normal(size=(32, 4))
GROUPS = 200
SIGMAS = 5.0


@pytest.fixture(autouse=True)
def doubles():
    with jax.enable_x64(True):
        yield


def gather(chosen):
    return jax.tree_util.tree_map(lambda leaf: leaf[chosen], (DATA, WEIGHT))


@jax.jit
def full(position, weight=WEIGHT):
    """Value, gradient and Hessian of the weighted sum, directly."""

    def direct(u):
        return jnp.dot(weight, MODEL.row_log_likelihoods(MODEL.transform(u)[0], DATA))

    return *jax.value_and_grad(direct)(position), jax.hessian(direct)(position)


@jax.jit
def residuals(anchor, positions):
    """What is left of each row beyond its second order, weighted: positions x rows."""

    def rows(u):
        return WEIGHT * MODEL.row_log_likelihoods(MODEL.transform(u)[0], DATA)

    def one(u):
        offset = u - anchor
        slope = lambda v: jax.jvp(rows, (v,), (offset,))[1]  # noqa: E731
        expected, change = jax.jvp(slope, (anchor,), (offset,))
        return rows(u) - rows(anchor) - expected - 0.5 * change

    return jax.vmap(one)(positions)


def exact_anchor(position):
    return Sums(*map(np.asarray, full(position)))


def make_terms(noise, num_islands=GROUPS, num_batches=1, largest=1024, exact_rows=1024):
    return Terms(
        MODEL,
        num_islands,
        num_batches=num_batches,
        largest=largest,
        exact_rows=exact_rows,
        noise=noise,
    )


def estimate(terms, size=64, num_rows=NUM_ROWS, absolute=True, seed=0, source=None, probes=PROBES):
    generators = [np.random.default_rng([seed, group]) for group in range(terms.num_groups)]
    if source is None:
        source = (gather, num_rows, num_rows)
    sums = exact_sums_of(num_rows)
    return terms.estimated(generators, POSITION, sums, source, probes, size, absolute=absolute)


def error_of(anchor):
    """Of the log-likelihood where the anchor stands."""
    return anchor.std_error(anchor.position[None], np.ones(1))


def exact_sums_of(num_rows):
    inside = np.where(np.arange(NUM_ROWS) < num_rows, WEIGHT, 0.0)
    return Sums(*map(np.asarray, full(POSITION, inside)))


@jax.jit
def values(term, positions, step=0):
    """Islands x positions, on the batch of a step."""

    def island(term):
        term = term.subsample(step)
        return jax.vmap(lambda u: term(MODEL, u, MODEL.transform(u)[0]))(positions)

    return jax.vmap(island, in_axes=(term.axes,))(term)


def expected_noise(size, num_rows=NUM_ROWS):
    """By the formula for batches without replacement: of the differences, and of their mean."""
    left = np.asarray(residuals(POSITION, PROBES))[:, :num_rows]
    factor = num_rows**2 * (1 / size - 1 / num_rows)
    common = left.mean(axis=0)
    relative = np.mean(np.var(left - common, axis=1, ddof=1))
    return factor * relative, factor * np.var(common, ddof=1)


# --- sums of all rows -------------------------------------------------------------------------


@pytest.mark.parametrize("num_rows", [0, 1, 7, 100, 2 * SUM_ROWS, 11 * SUM_ROWS + 77])
def test_blocks_have_every_row_once(num_rows):
    blocks = [chosen for chosen, _ in in_blocks(lambda chosen: (chosen, None), num_rows)]
    assert all(0 < len(block) <= SUM_ROWS for block in blocks)
    np.testing.assert_array_equal(np.concatenate([[], *blocks]), np.arange(num_rows))
    assert len(blocks) >= min(num_rows, 7), "enough for a variance"


def test_sums_of_blocks_are_those_of_all_rows():
    parts = sums_of(MODEL, POSITION, in_blocks(gather, NUM_ROWS))
    assert len(parts) > 1
    found, exact = total(4, parts), exact_anchor(POSITION)
    for mine, its in zip(found, exact):
        np.testing.assert_allclose(mine, its, rtol=1e-10, atol=1e-9)


def kept(capacity, seed=0):
    reservoir = Reservoir(capacity, seed)
    reservoir.append(DATA, WEIGHT)
    return reservoir


def test_an_anchor_is_exact_where_all_rows_are_kept():
    stale = Anchor(np.zeros(4), Sums(np.array(7.0), np.ones(4), np.eye(4)), 3.0, 10)
    for before in (None, stale):
        anchor = set_anchor(MODEL, POSITION, kept(NUM_ROWS), before)
        np.testing.assert_array_equal(anchor.position, POSITION)
        assert (anchor.errors, error_of(anchor), anchor.num_rows) == (None, 0.0, NUM_ROWS)
        for mine, its in zip(anchor.sums, exact_anchor(POSITION)):
            np.testing.assert_allclose(mine, its, rtol=1e-10, atol=1e-9)


@pytest.fixture
def short_blocks(monkeypatch):
    """Sums in blocks of 64 rows: many of them in a small reservoir."""
    monkeypatch.setattr(anchoring, "SUM_ROWS", 64)
    monkeypatch.setattr(anchoring, "SUM_BLOCK", 64)


def test_an_anchor_carried_over_is_right_within_its_error(short_blocks):
    offset = np.array([0.25, -0.2, 0.15, 0.2])
    before = Anchor(POSITION, exact_anchor(POSITION), NUM_ROWS)
    there = POSITION + offset
    exact, taylor = exact_anchor(there), before.sums.moved(offset)
    found = [set_anchor(MODEL, there, kept(1216, seed), before) for seed in range(24)]
    errors = np.array([float(anchor.sums.value - exact.value) for anchor in found])
    z = errors / np.array([error_of(anchor) for anchor in found])
    # Variances of 19 blocks: a Student-t of 18 degrees.
    assert np.abs(z).max() < SIGMAS
    assert 0.6 < np.sqrt(np.mean(z**2)) < 1.5
    # Without what the reservoir says, or with another scale or sign, it would be far off.
    assert abs(float(taylor.value - exact.value)) > 10 * np.std(errors)
    for field in ("gradient", "curvature"):
        wrong = np.abs(getattr(taylor, field) - getattr(exact, field)).max()
        mean = np.mean([getattr(anchor.sums, field) for anchor in found], axis=0)
        assert np.abs(mean - getattr(exact, field)).max() < 0.1 * wrong
    assert {anchor.num_rows for anchor in found} == {NUM_ROWS}


def test_the_error_of_an_anchor_adds_up_and_scales(short_blocks):
    sums, rows = exact_anchor(POSITION), kept(1216)

    def move(offset, before=None):
        before = before or Anchor(POSITION, sums, NUM_ROWS)
        return set_anchor(MODEL, POSITION + offset, rows, before)

    offset = np.array([0.02, -0.02, 0.01, 0.02])
    once = move(offset)
    # The residual is of third order.
    assert error_of(once) / error_of(move(0.5 * offset)) == pytest.approx(8, rel=0.1)
    assert error_of(move(0.0 * offset)) == pytest.approx(0.0, abs=1e-9)
    # In two moves by the same rows errors are what they are in one.
    twice = move(3 * offset, move(offset))
    straight = move(3 * offset)
    for one, other in zip(twice.errors, straight.errors):
        np.testing.assert_allclose(one, other, atol=0.05 * np.abs(other).max())


def test_errors_of_an_anchor_are_those_of_the_density_around_it(short_blocks):
    """At any place, not only where it stands: what it gives there, over many reservoirs."""
    offset = np.array([0.25, -0.2, 0.15, 0.2])
    before = Anchor(POSITION, exact_anchor(POSITION), NUM_ROWS)
    there = POSITION + offset
    beyond = there + np.array([[0.0, 0.0, 0.0, 0.0], [0.3, 0.1, -0.2, 0.1], [-0.4, 0.4, 0.1, 0.0]])
    exact, alone = exact_anchor(there), np.ones(1)
    found = [set_anchor(MODEL, there, kept(1216, seed), before) for seed in range(24)]
    for place in beyond:
        apart = place - there
        errors = [float(anchor.sums.at(apart) - exact.at(apart)) for anchor in found]
        stated = [anchor.std_error(place[None], alone) for anchor in found]
        z = np.array(errors) / stated
        assert np.abs(z).max() < SIGMAS
        assert 0.6 < np.sqrt(np.mean(z**2)) < 1.5
    # Of several particles the mean of what they are multiplied by counts, by their shares.
    anchor, share = found[0], np.array([0.5, 0.5, 0.0])
    heights = np.array(
        [[Sums(*error).at(place - there) for place in beyond] for error in zip(*anchor.errors)]
    )
    expected = np.log(0.5 * np.exp(heights[:, 0]) + 0.5 * np.exp(heights[:, 1]))
    assert anchor.std_error(beyond, share) == pytest.approx(np.sqrt(np.mean(expected**2)), rel=1e-9)


@pytest.mark.parametrize("capacity", [16, 500, 2000])
def test_the_error_of_an_anchor_is_known_with_any_reservoir(capacity):
    offset = np.array([0.25, -0.2, 0.15, 0.2])
    before = Anchor(POSITION, exact_anchor(POSITION), NUM_ROWS)
    anchor = set_anchor(MODEL, POSITION + offset, kept(capacity), before)
    (left,) = np.asarray(residuals(POSITION, (POSITION + offset)[None]))
    exact = NUM_ROWS**2 * (1 / capacity - 1 / NUM_ROWS) * np.var(left)
    # Of eight blocks the standard deviation is known to a quarter of itself.
    assert 0.25 < error_of(anchor) / np.sqrt(exact) < 2.5


# --- terms ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("num_batches", [1, 4])
def test_an_exact_term_is_the_sum_over_its_rows(num_batches):
    terms = make_terms(0.01, num_islands=8, num_batches=num_batches)
    chosen = np.arange(100, 437)
    term = terms.exact(*gather(chosen))
    expected = np.asarray(
        jax.vmap(partial(full, weight=np.where(np.isin(np.arange(NUM_ROWS), chosen), WEIGHT, 0)))(
            PROBES[:5]
        )[0]
    )
    for step in range(4):  # each of its batches has all of them
        found = values(term, PROBES[:5], step)
        np.testing.assert_allclose(found, np.tile(expected, (8, 1)), rtol=1e-11)


def test_smaller_noise_takes_larger_batches():
    sizes, found = [], []
    for noise in (150.0, 60.0, 25.0):
        estimated = estimate(make_terms(noise), absolute=False)
        sizes.append(estimated.term.size)
        found.append(estimated.noise.relative)
        assert estimated.noise.relative <= noise
        assert estimated.term.scale * estimated.term.size == pytest.approx(NUM_ROWS)
    assert sizes[0] < sizes[1] < sizes[2] < 1024
    assert found[0] > found[1] > found[2] > 0


def test_common_noise_counts_where_it_matters():
    """In weights all particles' noise counts, in moves only their differences."""
    # Particles close to each other and far from the anchor: their noise is mostly common.
    probes = POSITION + np.array([0.25, -0.25, 0.2, -0.2]) + 0.1 * (PROBES - POSITION)
    terms = make_terms(20.0)
    moves, weights = (estimate(terms, absolute=a, probes=probes) for a in (False, True))
    assert moves.noise.relative <= 20 < moves.noise.common
    assert sum(weights.noise) <= 20
    assert weights.term.size > moves.term.size == 64


def test_noise_is_what_fresh_batches_show_and_falls_as_it_should():
    """Variance over batches of differences from the centre, and of the centre: 1/B - 1/N."""
    ratios = []
    for size in (128, 512, 1024):
        measured = estimate(make_terms(1e9), size=size).noise
        relative, common = expected_noise(size)
        # Of 200 batches: each is known to sqrt(2 / 199) = 0.1 of itself.
        assert measured.relative == pytest.approx(relative, rel=0.4)
        assert measured.common == pytest.approx(common, rel=0.4)
        ratios.append(measured.relative / measured.scaled(2.0).relative)
        again = np.asarray(values(estimate(make_terms(1e9), size=size, seed=1).term, PROBES))
        centre = again.mean(axis=1, keepdims=True)
        assert np.mean(np.var(again - centre, axis=0, ddof=1)) == pytest.approx(relative, rel=0.4)
        assert np.var(centre, ddof=1) == pytest.approx(common, rel=0.4)
    np.testing.assert_allclose(ratios, 0.5)


def test_batches_estimate_the_sum_over_all_rows():
    found = np.asarray(values(estimate(make_terms(1e9), size=256).term, PROBES))
    exact = np.array([float(full(probe)[0]) for probe in PROBES])
    error = found.std(axis=0, ddof=1) / np.sqrt(len(found))
    assert (np.abs(found.mean(axis=0) - exact) < SIGMAS * error).all()
    taylor = [float(exact_anchor(POSITION).at(probe - POSITION)) for probe in PROBES]
    assert np.median(np.abs(taylor - exact) / error) > 2 * SIGMAS, "the residual would be missed"


def test_the_batch_it_wants_is_as_good_as_it_says():
    """Of one that is too noisy, ``wanted`` is what 1/B - 1/N asks for, with a margin."""
    first = estimate(make_terms(40.0, largest=64))
    assert first.term.size == 64
    assert sum(first.noise) > 40.0
    assert 64 < first.wanted < 1024
    enough = estimate(make_terms(40.0), size=first.wanted)
    assert enough.term.size == first.wanted, "at once"
    fewer = expected_noise(first.wanted / 1.6)
    assert sum(enough.noise) <= 40.0 < sum(fewer), "and not much larger than it must be"


def test_all_rows_are_used_where_nearly_all_are_wanted():
    num_rows = 1000
    terms = make_terms(1e-9, num_islands=8)
    found = estimate(terms, num_rows=num_rows)
    assert found.noise is NOISELESS
    assert (found.term.size, found.term.scale) == (num_rows, 1.0)
    inside = np.where(np.arange(NUM_ROWS) < num_rows, WEIGHT, 0.0)
    expected = np.array([float(full(probe, inside)[0]) for probe in PROBES[:5]])
    np.testing.assert_allclose(
        values(found.term, PROBES[:5]), np.tile(expected, (8, 1)), rtol=1e-11
    )
    # Where there are more rows than a batch may have, the noise stays, and is told.
    many = estimate(terms)
    assert many.term.size == 1024
    assert sum(many.noise) > 1e-9
    assert many.wanted > 1024


def test_all_rows_are_used_where_the_largest_batch_is_of_no_use(monkeypatch):
    monkeypatch.setattr(anchored_terms, "MAX_BATCH_NOISE", 1e-12)
    terms = dataclasses.replace(make_terms(1e-13, num_islands=8, largest=64), all_rows=NUM_ROWS)
    found = estimate(terms)
    assert found.noise is NOISELESS
    assert (found.term.size, found.wanted) == (NUM_ROWS, 64)
    expected = np.array([float(full(probe)[0]) for probe in PROBES[:5]])
    np.testing.assert_allclose(
        values(found.term, PROBES[:5]), np.tile(expected, (8, 1)), rtol=1e-11
    )
    # Not where there are too many of them, where they are a sample, or where batches are of use.
    few = dataclasses.replace(terms, all_rows=NUM_ROWS - 1)
    sample = (gather, NUM_ROWS // 2, NUM_ROWS)
    monkeypatch.setattr(anchored_terms, "MAX_BATCH_NOISE", 1e-12)
    assert estimate(few).term.size == estimate(terms, source=sample).term.size == 64
    monkeypatch.setattr(anchored_terms, "MAX_BATCH_NOISE", 1e12)
    assert estimate(terms).term.size == 64


def test_no_noise_asks_for_the_smallest_batch():
    linear = wb.zoo.linear.model(2)
    data = wb.zoo.linear.simulate(3000, num_features=2, seed=1)
    take = lambda chosen: (  # noqa: E731
        jax.tree_util.tree_map(lambda leaf: leaf[chosen], data), np.ones(np.shape(chosen))
    )  # fmt: skip
    terms = Terms(linear, 2, num_batches=1, largest=256, exact_rows=256, noise=0.01)
    sums = total(3, sums_of(linear, np.zeros(3), in_blocks(take, 3000)))
    probes = np.random.default_rng(0).normal(size=(8, 3))
    generators = [np.random.default_rng(group) for group in range(terms.num_groups)]
    found = terms.estimated(
        generators, np.zeros(3), sums, (take, 3000, 3000), probes, 256, absolute=True
    )
    assert found.wanted == SMALLEST_BATCH
    assert sum(found.noise) < 1e-15


@pytest.mark.parametrize("num_batches", [1, 4])
def test_no_row_is_twice_in_a_batch_and_no_batch_is_another(num_batches):
    asked = []

    def recording(chosen):
        asked.append(chosen)
        return gather(chosen)

    terms = make_terms(1e9, num_islands=3, num_batches=num_batches)
    found = estimate(terms, size=150, source=(recording, NUM_ROWS, NUM_ROWS))
    (chosen,) = asked
    batches = chosen[:, : 150 * num_batches].reshape(-1, 150)
    assert len(batches) == terms.num_groups * num_batches, "with few islands others measure"
    assert all(len(set(batch)) == 150 for batch in batches)
    assert len({frozenset(batch) for batch in batches}) == len(batches)
    # The islands have the first of them, and each of their batches its own sums.
    term = found.term
    assert term.rows.weight.shape == (3, terms.capacity)
    assert terms.capacity % SPAN_BLOCK == 0
    np.testing.assert_array_equal(term.rows.values["x"], DATA["x"][chosen[:3]])
    assert term.batch_sums.value.shape == (3, num_batches)
    log_likelihoods = MODEL.row_log_likelihoods(MODEL.transform(POSITION)[0], DATA)
    own = (WEIGHT * np.asarray(log_likelihoods))[batches].sum(axis=1)
    np.testing.assert_allclose(term.batch_sums.value.ravel(), own[: 3 * num_batches], rtol=1e-10)


def test_rows_of_a_reservoir_stand_for_all_that_were_seen():
    """The scale is n / |B| with the rows seen, not those kept."""
    rows = kept(1216)
    source = (rows.gather, rows.num_kept, rows.num_seen)
    found = estimate(make_terms(1e9), size=128, source=source)
    assert found.term.scale == pytest.approx(NUM_ROWS / 128)
    # Over batches of the same reservoir, and what all of them have in common.
    left = np.asarray(residuals(POSITION, PROBES))
    one_row = NUM_ROWS**2 * np.mean(np.var(left - left.mean(axis=0), axis=1))
    assert found.noise.relative == pytest.approx(one_row * (1 / 128 - 1 / 1216), rel=0.5)
    assert found.floor.relative == pytest.approx(one_row * (1 / 1216 - 1 / NUM_ROWS), rel=0.5)
    assert estimate(make_terms(1e9, num_islands=8)).floor == NOISELESS, "all rows are there"


def test_batches_of_a_reservoir_leave_enough_of_it_to_tell_its_own_noise():
    rows = kept(640)
    source = (rows.gather, rows.num_kept, rows.num_seen)
    found = estimate(make_terms(1e-3, num_islands=8), source=source)
    assert found.term.size == 320
    left = np.asarray(residuals(POSITION, PROBES))
    one_row = NUM_ROWS**2 * np.mean(np.var(left - left.mean(axis=0), axis=1))
    assert found.floor.relative == pytest.approx(one_row * (1 / 640 - 1 / NUM_ROWS), rel=0.7)
