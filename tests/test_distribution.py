"""The wheel, installed into an environment of its own, runs the demo."""

import json
import subprocess
import sys
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def run(*command, **options):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, **options)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


@pytest.mark.dist
def test_wheel_runs_the_demo_in_a_clean_environment(tmp_path):
    run(sys.executable, "-m", "build", "--no-isolation", "--wheel", "--outdir", tmp_path, ROOT)
    wheel = next(tmp_path.glob("leapling-*.whl"))
    venv.create(tmp_path / "environment", with_pip=True)
    bin_folder = tmp_path / "environment" / "bin"
    pinned = ROOT / "requirements" / "dev.txt"
    run(bin_folder / "pip", "install", "--quiet", "--disable-pip-version-check", "-c", pinned, wheel)

    out = tmp_path / "demo"
    result = json.loads(run(bin_folder / "leapling", "demo", "--json", "--out", out, cwd=tmp_path))
    assert result["exactness"]["passed"] is True
    assert [row["method"] for row in result["tables"][0]["rows"]] == [
        "L2HMC",
        "HMC tuned (min_ess)",
        "HMC tuned (ess_paper)",
        "HMC M=10",
    ]
    for row in result["tables"][0]["rows"]:
        assert 0 < row["min_ess"] < 1.5
        assert 0 < row["ess_paper"] < 1.5
    assert json.loads((out / "demo.json").read_text()) == result
    for picture in ("autocorrelation.png", "chains.png", "training.png"):
        assert (out / picture).read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    assert result["verdict"] in (out / "demo.md").read_text()
    # The folder is a run: the next commands read it.
    run(bin_folder / "leapling", "diagnose", out, cwd=tmp_path)
