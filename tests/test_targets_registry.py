"""Names and import specifications become energies, or errors that say what to type instead."""

import sys

import jax
import jax.numpy as jnp
import pytest

from leapling.targets import TARGETS, Funnel, resolve


@pytest.fixture
def energies(tmp_path, monkeypatch):
    """A folder of a user's modules, the current directory for one test; the import path is put back after."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "leapling_test_neighbour.py").write_text("FACTOR = 3.0\n")
    (tmp_path / "leapling_test_energy.py").write_text(
        "import jax.numpy as jnp\n"
        "from leapling.targets import Funnel\n"
        "from leapling_test_neighbour import FACTOR\n"
        "def energy(x):\n    return FACTOR * jnp.sum(x**2)\n"
        "target = Funnel(dim=3)\n"
        "number = 4\n"
    )
    (tmp_path / "leapling_test_broken.py").write_text("raise RuntimeError('no data here')\n")
    (tmp_path / "leapling_test_exits.py").write_text("raise SystemExit(2)\n")
    (tmp_path / "leapling_test_wants.py").write_text("import leapling_test_absent\n")
    return tmp_path


@pytest.mark.parametrize("name", TARGETS)
def test_resolve_finds_built_in_targets(name):
    assert resolve(name) == TARGETS[name]()


@pytest.mark.parametrize("source", ["{}", "{}.py", "./{}.py"])
def test_resolve_imports_an_energy(energies, source):
    source = source.format("leapling_test_energy")
    assert float(resolve(f"{source}:energy")(jnp.ones(2))) == 6.0
    target = resolve(f"{source}:target")
    assert isinstance(target, Funnel)
    assert target.dim == 3


def test_resolve_finds_neighbours_of_a_file_elsewhere(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path / "unrelated")
    (tmp_path / "leapling_test_beside.py").write_text("FACTOR = 5.0\n")
    (tmp_path / "jax.py").write_text(
        "def energy(x):\n    from leapling_test_beside import FACTOR\n    return FACTOR * (x**2).sum()\n"
    )
    # The file's name must not displace the real package; its neighbour is imported only when it is called.
    assert float(resolve(f"{tmp_path}/jax.py:energy")(jnp.ones(2))) == 10.0
    assert sys.modules["jax"] is jax


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("rough-wel", "did you mean 'rough-well'.*scg, icg, .*module:function or path/file.py:function"),
        ("zzzzzz", r"no target 'zzzzzz': give one of scg"),
        ("leapling_test_energy.py", "no target 'leapling_test_energy.py'.*path/file.py:function"),
        ("leapling_test_energy:", "no target"),
        ("missing.py:energy", "no file missing.py"),
        ("leapling_test_missing:energy", "no module 'leapling_test_missing'"),
        ("leapling_test_missing.sub:energy", "no module 'leapling_test_missing.sub'"),
        ("leapling_test_energy.py:enrgy", "no attribute 'enrgy'.*did you mean 'energy'"),
        ("leapling_test_energy:zzz", "no attribute 'zzz'.*it offers .*energy"),
        ("leapling_test_energy:number", "of type int, a function"),
        ("leapling_test_energy:Funnel", "a class, a function"),
        ("leapling_test_broken:energy", "leapling_test_broken.py raised RuntimeError: no data here"),
        ("leapling_test_broken.py:energy", "leapling_test_broken.py raised RuntimeError: no data here"),
        ("leapling_test_exits.py:energy", "leapling_test_exits.py raised SystemExit: 2"),
        ("leapling_test_wants:energy", "leapling_test_wants.py raised ModuleNotFoundError"),
    ],
)
def test_resolve_explains_what_is_wrong(energies, spec, message):
    with pytest.raises(ValueError, match=message) as caught:
        resolve(spec)
    if "raised" in message:
        assert type(caught.value.__cause__).__name__ in message


def test_user_modules_are_not_imported_before_they_are_named(energies):
    for name in TARGETS:
        resolve(name)
    (energies / "leapling_test_marks.py").write_text("open('ran', 'w').close()\ndef energy(x):\n    return x\n")
    assert not (energies / "ran").exists()
    resolve("leapling_test_marks:energy")
    assert (energies / "ran").exists()
