"""What all tests share: examples write into a folder of their own, programs are not hoarded."""

import gc
import os

# To be set before JAX starts. Tests compile more than they run, and two processes of them share two
# cores: without the fusion emitters, quick machine code, and one thread for each compilation.
os.environ.setdefault(
    "XLA_FLAGS",
    "--xla_backend_optimization_level=0 --xla_cpu_use_fusion_emitters=false"
    " --xla_cpu_parallel_codegen_split_count=1",
)

import jax
import pytest

from weighbridge.core import compilation


def pytest_configure(config):
    """Our programs too, except where tests run longer than they compile (``-m long``)."""
    if config.option.markexpr != "long":
        for options in (compilation.QUICK_TO_COMPILE, compilation.QUICK_TO_RUN):
            options["xla_backend_optimization_level"] = 0


def pytest_collection_finish():
    """Look for unused objects less often, and never among modules: tracing makes very many."""
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)


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
