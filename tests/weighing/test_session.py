"""Checks and cuts that all updates of a stream share."""

import numpy as np
import pytest

import weighbridge as wb
from weighbridge.weighing.online_comparison.given_models import check_models, choose_methods
from weighbridge.weighing.session import Session, check_changes, require_rows

MODEL = wb.zoo.gaussian.model()


def test_an_update_without_rows_is_refused():
    require_rows(np.zeros(1))
    with pytest.raises(wb.DataError, match="The update has no rows"):
        require_rows({"y": np.zeros(0)})


def test_changes_are_settings_of_a_detector():
    check_changes(None)
    check_changes(wb.Changes(1e-3))
    with pytest.raises(wb.MethodError, match=r"must be a wb\.Changes or None, not 0\.001"):
        check_changes(0.001)


@pytest.mark.parametrize(("changes", "sizes"), [(None, [256, 256, 88]), ("few", [200, 200, 200])])
def test_rows_are_cut_as_the_method_and_the_detector_ask(changes, sizes):
    settings = None if changes is None else wb.Changes(1e-3, window=200)
    session = Session(MODEL, wb.SGAIS(num_islands=2, num_particles=4), 0, "raise", changes=settings)
    rows = np.arange(600.0)
    chunks = list(session.cut(rows))
    assert [len(chunk) for chunk in chunks] == sizes
    assert np.concatenate(chunks).tolist() == rows.tolist()


def test_models_and_methods_are_given_by_name():
    check_models({"a": MODEL})
    for bad in ({}, {"": MODEL}, {"a": "model"}, [MODEL]):
        with pytest.raises(wb.MethodError):
            check_models(bad)
    assert choose_methods(["a", "b"], "ibis") == {"a": "ibis", "b": "ibis"}
    assert choose_methods(["a", "b"], {"b": "sgais", "a": "ibis"}) == {"a": "ibis", "b": "sgais"}
    with pytest.raises(wb.MethodError, match="each of"):
        choose_methods(["a", "b"], {"a": "ibis"})
