"""What all tests share: examples write into a folder of their own, programs are not hoarded."""

import os

# Tests compile more than they run: without the fusion emitters, and with the library's own level
# wherever they call jax.jit. To be set before JAX starts.
os.environ.setdefault(
    "XLA_FLAGS", "--xla_backend_optimization_level=1 --xla_cpu_use_fusion_emitters=false"
)

import jax
import pytest


@pytest.fixture(autouse=True, scope="module")
def _programs_do_not_pile_up():
    """Let compiled programs go after each file: thousands of them in one process crash XLA."""
    yield
    jax.clear_caches()


@pytest.fixture(autouse=True)
def _examples_write_elsewhere(request, tmp_path, monkeypatch):
    if isinstance(request.node, pytest.DoctestItem):
        monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="module")
def compiled():
    """A list that grows by one for every program that JAX lowers."""
    found = []

    def listen(name, seconds, **details):
        if name == "/jax/core/compile/jaxpr_to_mlir_module_duration":
            found.append(details.get("fun_name"))

    jax.monitoring.register_event_duration_secs_listener(listen)
    yield found
    jax.monitoring.unregister_event_duration_listener(listen)
