"""Clusters of points, also of points that do not vary."""

import numpy as np

from weighbridge.estimators.clusters import find_clusters


def test_separate_groups_are_found():
    generator = np.random.default_rng(0)
    groups = [generator.normal(centre, 1.0, (60, 3)) for centre in (-10.0, 0.0, 40.0)]
    found = find_clusters(np.concatenate(groups))
    assert sorted(tuple(sorted(cluster.members)) for cluster in found) == [
        tuple(range(first, first + 60)) for first in (0, 60, 120)
    ]


def test_points_that_do_not_vary_are_one_cluster():
    constant = np.full((100, 2), 1.0 / 3.0)
    assert [len(cluster.members) for cluster in find_clusters(constant)] == [100]
    # Two values only, far above rounding: two clusters, and no warning.
    one = constant.copy()
    one[50:, 0] = 7.0
    assert sorted(len(cluster.members) for cluster in find_clusters(one)) == [50, 50]
