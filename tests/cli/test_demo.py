"""The demonstration: changes are found where they are, and nowhere else."""

import numpy as np
import pytest

from weighbridge import SGAIS, CheckpointError, DataError, OnlineComparison, zoo
from weighbridge.cli import demo

pytestmark = pytest.mark.long

QUICK = SGAIS(num_islands=4, num_particles=4, chunk_size=demo.LARGEST_CHUNK, target_ess=0.3)


def found_in(stream):
    online = OnlineComparison({"three": zoo.mixture.model(3)}, QUICK, changes=demo.CHANGES)
    for chunk in demo.chunks(stream):
        online.update(chunk)
    return [change.row for change in online.changes]


def test_both_changes_are_found_and_hardly_any_in_shuffled_streams():
    stream = demo.simulate(1_458, seed=0)
    rows = found_in(stream)
    assert len(rows) == 2
    assert np.abs(np.array(rows) - demo.CHANGE_POINTS).max() < 50
    shuffled = [np.random.default_rng(seed).permutation(stream) for seed in range(10)]
    # 50 tests at a rate of 1e-3: two false alarms or more have a probability of 0.0012.
    assert sum(len(found_in(rows)) for rows in shuffled) <= 1


@pytest.fixture
def small(monkeypatch):
    method = SGAIS(num_islands=4, num_particles=4, target_ess=0.3)
    model = zoo.mixture.model(2)
    monkeypatch.setattr(demo.mixture, "model", lambda components: model)  # compiles only once
    monkeypatch.setattr(demo, "METHOD", method)
    monkeypatch.setattr(demo, "LEAST_ROWS", 400)
    monkeypatch.setattr(demo, "COMPONENTS", (1, 2))
    monkeypatch.setattr(demo, "CHANGE_POINTS", (200, 300))


@pytest.mark.usefixtures("small")
def test_run(tmp_path, capsys):
    demo.run(400, 0, tmp_path / "figure.png")
    out, err = capsys.readouterr()
    assert "A stream of 400 points" in out
    assert "three from row 200, five from row 300" in out
    assert "mixture:1" in out
    assert "probability" in out
    assert "400 observations" in out
    assert "Changes of the distribution were found " in out
    assert "(truth: at row 200 and at row 300)" in out
    assert (tmp_path / "figure.png").read_bytes().startswith(b"\x89PNG")
    lines = [line for line in err.splitlines() if line.startswith("mixture")]
    assert 0 < len(lines) <= 2 * 5  # sparse, by the clock
    assert " of 400 rows  log evidence " in lines[-1]


@pytest.mark.usefixtures("small")
def test_mistakes_are_named_before_the_run(tmp_path, capsys):
    with pytest.raises(DataError, match="at least 400 rows, not 399"):
        demo.run(399, 0, tmp_path / "figure.png")
    with pytest.raises(CheckpointError, match="no folder"):
        demo.run(400, 0, tmp_path / "nowhere" / "figure.png")
    assert capsys.readouterr().out == ""
