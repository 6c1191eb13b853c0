"""What a first answer compiles and imports, in a fresh process; guarded by counts, not by times."""

import json
import os
import subprocess
import sys

import pytest

# Most programs that the first call of a process compiles, the probe of the compiler included.
MOST_PROGRAMS = {
    "smc": 6,
    "sgais": 6,
    "ais": 6,
    "ibis": 7,
    "thermodynamic": 6,
    "bidirectional": 8,
    "nested": 7,
    "nuts": 5,
    "online": 6,
    "online_nested": 5,
    "published": 5,
    "prior_sampling": 4,
    "sequential_sgmcmc": 9,
    "laplace": 10,
    "importance": 11,
    "bridge": 9,
    "harmonic_mean": 9,
}
# IBIS and the methods that draw by NUTS have one more layout of the rows.
FOUR_TRACES = {"ibis", "bridge", "harmonic_mean"}
# The bridge measures autocorrelations of its draws with ArviZ.
NEEDS_ARVIZ = {"bridge"}
# Libraries that take long to import, and that an evidence does not need.
HEAVY = {
    "arviz_base", "arviz_plots", "arviz_stats", "distributed", "matplotlib", "pandas", "polars",
    "pyarrow", "redis", "rich", "scipy.optimize", "scipy.stats", "sklearn", "typer",
}  # fmt: skip

PROGRAM = """
import json, sys
import jax, numpy as np, numpyro.distributions as dist
found = []
def listen(name, seconds, **details):
    if name == "/jax/core/compile/jaxpr_to_mlir_module_duration":
        found.append(details.get("fun_name"))
jax.monitoring.register_event_duration_secs_listener(listen)
import weighbridge as wb
traced = []
def log_likelihood(parameters, row):
    traced.append(None)
    return dist.Normal(parameters["mu"], 1.0).log_prob(row["y"])
def call(case, scale, seed):
    model = wb.Model({"mu": dist.Normal(0, scale)}, log_likelihood)
    data = {"y": np.random.default_rng(seed).normal(size=100)}
    if case == "nuts":
        wb.sample(model, data, num_samples=50, num_warmup=50, num_chains=1, progress=False)
    elif case == "bidirectional":
        def simulate(parameters, generator):
            return {"y": generator.normal(parameters["mu"], 1.0, size=100)}
        wb.bidirectional(model, simulate, seed=seed)
    elif case == "online":
        online = wb.Online(model)
        online.update(data)
        online.result()
    else:
        wb.evidence(model, data, case, progress=False)
call(sys.argv[1], 1.0, 0)
first, num_traced = list(found), len(traced)
call(sys.argv[1], 2.0, 1)
print(json.dumps([first, found[len(first):], num_traced, sorted(sys.modules)]))
"""


# One process for each method takes seconds: only the default method is in the short tests.
@pytest.fixture(
    scope="module",
    params=[
        pytest.param(name, marks=() if name == "sgais" else pytest.mark.long)
        for name in MOST_PROGRAMS
    ],
)
def first_answer(request, tmp_path_factory):
    """The method; programs of its first call and of a second one; traces; modules."""
    cache = tmp_path_factory.mktemp("cache")
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, request.param],
        env=os.environ | {"WEIGHBRIDGE_COMPILATION_CACHE": str(cache)},
        check=True, capture_output=True, text=True,
    )  # fmt: skip
    return request.param, *json.loads(done.stdout)


def test_a_first_call_compiles_few_programs(first_answer):
    name, programs = first_answer[:2]
    assert len(programs) <= MOST_PROGRAMS[name], programs


def test_other_data_and_another_model_of_the_same_make_compile_nothing(first_answer):
    assert not first_answer[2]


def test_the_model_is_traced_once_for_all_programs(first_answer):
    # Twice to check that it is not random, once for each layout of its rows in a program.
    name, num_traced = first_answer[0], first_answer[3]
    assert num_traced <= (4 if name in FOUR_TRACES else 3)


def test_an_answer_imports_no_heavy_library(first_answer):
    assert first_answer[0] in NEEDS_ARVIZ or not HEAVY & set(first_answer[4])
