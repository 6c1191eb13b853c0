"""The points of a run's path have names, and saved paths are the arrays they always were."""

import numpy as np
import pytest

import weighbridge as wb
from weighbridge.estimators.path_points import PathPoint, path_array, path_points

MODEL = wb.zoo.gaussian.model()
ROWS = wb.zoo.gaussian.simulate(60, seed=1)
NAMES = ("rows", "log_evidence", "std_error", "annealing_steps", "ess", "temperature")
METHODS = {
    "sgais": (wb.SGAIS(4, 16), 6),
    "published": (wb.SGAIS.published(), 6),
    "ibis": (wb.IBIS(4, 16), 5),
    "sequential_sgmcmc": (wb.SequentialSGMCMC(num_particles=16, num_islands=4), 6),
}


@pytest.mark.parametrize("name", METHODS)
def test_runs_tell_points_and_save_the_columns_that_they_have(name):
    method, width = METHODS[name]
    run = method.start(MODEL, seed=0)
    run.absorb(ROWS, np.ones(60))
    last = run.path[-1]
    assert isinstance(last, PathPoint)
    assert last._fields == NAMES
    saved = run.state()[0]["path"]
    assert saved.shape == (len(run.path), width)
    np.testing.assert_array_equal(saved, np.array(run.path)[:, :width])
    trace = run.result(0.0, {}).trace
    assert tuple(trace) == NAMES[:width]
    assert trace.log_evidence[-1] == last.log_evidence

    again = method.start(MODEL, seed=0)
    again.restore(*run.state())
    np.testing.assert_array_equal(np.array(again.path), np.array(run.path))
    assert all(isinstance(point, PathPoint) for point in again.path)


def test_an_array_that_is_no_path_is_refused():
    with pytest.raises(ValueError, match="a path of the shape"):
        path_points(np.zeros((3, 4)))
    assert path_points(path_array([], 6)) == []
