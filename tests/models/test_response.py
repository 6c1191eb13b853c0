"""Densities of real values and probabilities of classes are not compared."""

import numpy as np
import numpyro.distributions as dist
import pytest
from typer.testing import CliRunner

import weighbridge as wb
from weighbridge.cli.application import app
from weighbridge.core.errors import MethodError, ModelError

ROWS = {"x": np.zeros((6, 2)), "y": np.array([0.0, 1.0, 0.0, 1.0, 1.0, 0.0])}
MIXED = {"line": wb.zoo.linear.model(2), "classes": wb.zoo.logistic.model(2, 2)}
TOLD = r"'line' gives a density.*'classes' the probability of a class.*Compare models of one kind"


def test_compare_refuses_a_density_beside_a_probability():
    with pytest.raises(MethodError, match=TOLD):
        wb.compare(MIXED, ROWS, progress=False)


def test_a_comparison_online_refuses_it_too():
    with pytest.raises(MethodError, match=TOLD):
        wb.OnlineComparison(MIXED)
    online = wb.OnlineComparison({"line": MIXED["line"]})
    with pytest.raises(MethodError, match=TOLD):
        online.add("classes", MIXED["classes"])


@pytest.mark.parametrize("command", ["compare", "watch"])
def test_the_shell_refuses_it_before_it_reads(command, tmp_path):
    table = tmp_path / "table.csv"
    table.write_text("x,y\n0.1,0\n0.2,1\n0.3,1\n")
    arguments = [command, "linear", "softmax:2", str(table), "--target", "y"]
    if command == "watch":
        arguments += ["--checkpoint", str(tmp_path / "run")]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 1
    told = " ".join(result.output.split())
    assert "'linear' gives a density" in told
    assert "'softmax:2' the probability of a class" in told


def test_a_model_of_ones_own_may_say_and_need_not():
    def log_likelihood(p, row):
        return dist.Bernoulli(logits=p["b"]).log_prob(row["y"])

    prior = {"b": dist.Normal(0.0, 1.0)}
    own = wb.Model(prior, log_likelihood, response="probability")
    with pytest.raises(MethodError, match="different units"):
        wb.compare({"line": MIXED["line"], "own": own}, ROWS, progress=False)
    silent = wb.Model(prior, log_likelihood)
    assert silent.response is None
    small = wb.SMC(num_islands=4, num_particles=16)
    found = wb.compare({"silent": silent, "classes": own}, ROWS, small, progress=False)
    assert found.probabilities["silent"] == pytest.approx(0.5)
    with pytest.raises(ModelError, match="response is one of"):
        wb.Model(prior, log_likelihood, response="classes")


def test_every_model_of_the_zoo_says_what_it_is_of():
    kinds = {name: entry.build(1, None).response for name, entry in wb.zoo.entries().items()}
    assert kinds.pop("softmax") == "probability"
    assert set(kinds.values()) == {"density"}
