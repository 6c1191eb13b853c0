"""The demonstration: changes are found where they are, and nowhere else."""

import numpy as np
import pytest

from weighbridge import SGAIS, CheckpointError, DataError, demo, zoo

CHUNK = 500


def sequence(levels, seed=0, models=3):
    """Log predictive per row of chunks at these levels, with the noise of 500 rows each."""
    noise = np.random.default_rng(seed).normal(size=len(levels)) / np.sqrt(CHUNK)
    offsets = np.linspace(0, -0.2, models)[:, None]
    return np.asarray(levels) + noise + offsets


def find(predictive):
    return demo.find_changes(predictive, range(0, CHUNK * predictive.shape[1], CHUNK), CHUNK)


@pytest.mark.parametrize("seed", range(5))
def test_both_changes_are_found(seed):
    """A jump of 0.6 nats per row is 13 standard errors: beyond the alarm of 6 by 7."""
    levels = [-4.0, -3.2] + [-3.8] * 18 + [-4.4] * 20
    assert find(sequence(levels, seed)) == [2 * CHUNK, 20 * CHUNK]


def test_no_change_in_stationary_noise():
    """No false alarm in 200 sequences; by chance there would be one with p < 0.01.

    An alarm needs a fall by 6 standard errors from the median of the chunks before. After a
    single chunk the difference has a deviation of sqrt(2) standard errors, p = 1.1e-5; after
    more, of at most sqrt(1.5), p < 5e-7. So p < 200 * (1.1e-5 + 37 * 5e-7) < 0.006 in all.
    """
    for seed in range(200):
        assert find(sequence([-5.0] + [-3.0] * 39, seed)) == []


def test_a_surprise_to_one_model_only_is_no_change():
    predictive = sequence([-4.0] + [-3.0] * 19)
    predictive[0, 10:] -= 1.0
    assert find(predictive) == []


def test_a_rise_is_no_change():
    assert find(sequence([-4.0] + [-3.0] * 9 + [-2.0] * 10)) == []


def test_short_sequences():
    for length in (1, 2):
        assert find(sequence([-3.0] * length)) == []


@pytest.fixture
def small(monkeypatch):
    method = SGAIS(num_islands=4, num_particles=4, chunk_size=100, target_ess=0.3)
    model = zoo.mixture.model(2)
    monkeypatch.setattr(demo.mixture, "model", lambda components: model)  # compiles only once
    monkeypatch.setattr(demo, "METHOD", method)
    monkeypatch.setattr(demo, "CHUNK_SIZE", 100)
    monkeypatch.setattr(demo, "COMPONENTS", (1, 2))
    monkeypatch.setattr(demo, "CHANGE_POINTS", (200, 300))


@pytest.mark.usefixtures("small")
def test_run(tmp_path, capsys):
    demo.run(400, 0, tmp_path / "figure.png")
    out, err = capsys.readouterr()
    assert "A stream of 400 points" in out
    assert "five from row 200, seven from row 300" in out
    assert "mixture:1" in out
    assert "probability" in out
    assert "400 observations" in out
    assert "The evidence says that the world changed " in out
    assert "(truth: at row 200 and at row 300)" in out
    assert (tmp_path / "figure.png").read_bytes().startswith(b"\x89PNG")
    lines = err.splitlines()
    assert len(lines) == 2 * 4
    assert lines[-1].startswith("mixture:2: 400 of 400 rows  log evidence ")


@pytest.mark.usefixtures("small")
def test_mistakes_are_named_before_the_run(tmp_path, capsys):
    with pytest.raises(DataError, match="at least 400 rows, not 399"):
        demo.run(399, 0, tmp_path / "figure.png")
    with pytest.raises(CheckpointError, match="no folder"):
        demo.run(400, 0, tmp_path / "nowhere" / "figure.png")
    assert capsys.readouterr().out == ""
