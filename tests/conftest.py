"""Strict JAX for the tests, set before any test module imports it.

Through `jax.config`, not the environment: a subprocess, such as the command line, must see JAX as users do.
"""

import os

os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["MPLBACKEND"] = "Agg"

import jax
import pytest

jax.config.update("jax_enable_x64", True)
jax.config.update("jax_numpy_rank_promotion", "raise")
jax.config.update("jax_numpy_dtype_promotion", "strict")


def pytest_addoption(parser):
    parser.addoption("--long", action="store_true", help="run the checks marked slow at full length")


@pytest.fixture(scope="session")
def is_long(request) -> bool:
    """Whether a slow check should run at full length."""
    return request.config.getoption("--long")


@pytest.fixture(scope="module", autouse=True)
def few_programs():
    """A worker that keeps some thousand compiled programs runs out of memory mappings, and dies."""
    yield
    jax.clear_caches()
