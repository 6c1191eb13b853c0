"""Importance sampling over many runs, and on harder models."""

import math

import numpy as np
import pytest

import weighbridge as wb
from benchmarks import problems

pytestmark = pytest.mark.long


def test_exchangeable_components_need_one_labelling_only():
    data = wb.zoo.mixture.simulate(40, num_components=2, num_features=1, seed=1)
    model = wb.zoo.mixture.model(2, 1)
    plain = wb.Model(model._entries, model.log_likelihood)
    one, both = (
        wb.evidence(m, data, wb.Importance(), seed=2, progress=False) for m in (model, plain)
    )
    assert model.exchangeable
    assert abs(one.log_evidence - both.log_evidence) < 5 * math.hypot(one.std_error, both.std_error)
    assert one.std_error < 0.1
    # From draws with either labelling, and from a proposal for one labelling.
    draws = both.resample(400)
    again = wb.evidence(model, data, wb.Importance(draws), seed=3, progress=False)
    assert abs(again.log_evidence - one.log_evidence) < 5 * math.hypot(
        again.std_error, one.std_error
    )


@pytest.mark.parametrize("build", [problems.normal_in_box, problems.log_gamma])
def test_the_error_is_true_over_many_seeds(build):
    problem, scores = build(), []
    for seed in range(30):
        result = wb.evidence(
            problem.model, problem.data, wb.Importance(), seed=seed, progress=False
        )
        scores.append((result.log_evidence - problem.log_evidence) / result.std_error)
    assert 0.6 < np.std(scores) < 1.45
    assert abs(np.mean(scores)) < 4 / math.sqrt(30)


def test_a_posterior_of_forty_four_parameters():
    problem = problems.softmax()
    for seed in range(3):
        result = wb.evidence(
            problem.model, problem.data, wb.Importance(), seed=seed, progress=False
        )
        assert not result.flags
        # The reference has an error of its own, of a hundredth.
        error = math.hypot(result.std_error, 0.01)
        assert abs(result.log_evidence - problem.log_evidence) < 5 * error
