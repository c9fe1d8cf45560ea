"""The README's code runs, and the examples do what they say."""

import importlib.util
import json
import re
from pathlib import Path

import arviz as az
import jax
import numpy as np
import pytest

from leapling.report import page_markdown

ROOT = Path(__file__).parents[1]


def load(name):
    spec = importlib.util.spec_from_file_location(name, ROOT / "examples" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_readme_code_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert len(blocks) == 2
    fitting: dict = {}
    with jax.enable_x64(False):
        exec(compile(blocks[0], "README.md", "exec"), fitting)
    assert fitting["fitted"].verdict.exactness["passed"]
    assert fitting["data"].posterior["x"].shape == (64, 1000, 2)
    names: dict = {}
    exec(compile(blocks[1], "README.md", "exec"), names)
    assert names["report"].passed
    assert "on a stand-in" in str(names["report"])
    assert 0 < names["figures"]["min_ess"] < 1.5
    assert az.from_netcdf(tmp_path / "draws.nc")["posterior"]["x"].shape == (100, 500, 2)
    assert np.array_equal(names["kernel"].masks, names["trained"].kernel.masks)


RESULTS = ROOT / "docs" / "results"


def table_rows(text: str) -> set[str]:
    """The rows that hold numbers, whatever their padding."""
    lines = (" ".join(line.split()) for line in text.splitlines() if line.startswith("|"))
    return {line for line in lines if re.search(r"\d", line) and "`" not in line}


def test_every_table_of_the_readme_is_made_by_a_command():
    made = set().union(*(table_rows(path.read_text()) for path in RESULTS.glob("*.md")))
    shown = table_rows((ROOT / "README.md").read_text())
    assert len(shown) >= 8
    assert shown <= made
    assert table_rows((RESULTS / "demo.md").read_text().split("Exactness")[0]) <= shown


def test_readme_shows_the_verdict_of_the_demo():
    verdict = json.loads((RESULTS / "demo.json").read_text())["verdict"]
    assert verdict in (ROOT / "README.md").read_text()


@pytest.mark.parametrize("path", sorted(RESULTS.glob("*.md")), ids=lambda path: path.stem)
def test_a_page_is_that_of_its_json(path):
    assert path.read_text() == page_markdown(json.loads(path.with_suffix(".json").read_text()))


def test_own_energy(capsys):
    draws = load("own_energy").main()
    out = capsys.readouterr().out
    assert "invariance" in out
    assert "failed" not in out
    mean = draws.positions.mean(axis=(0, 1))
    assert 0 < mean[1] < 4


def test_own_kernel(capsys):
    assert load("own_kernel").main().passed
    assert "verdict: passed" in capsys.readouterr().out


@pytest.mark.parametrize("path", sorted((ROOT / "examples").glob("*.py")), ids=lambda path: path.name)
def test_every_example_is_run_here(path):
    assert f'load("{path.stem}")' in Path(__file__).read_text()
