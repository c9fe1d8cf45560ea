"""The paper's experiments: stored piece by piece, the same when resumed, written down once."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from leapling.cli import main
from leapling.kernels import L2HMC
from leapling.report import page_markdown
from leapling.reproduce import EXPERIMENTS, ablations, autocorrelation, burn_in, chains, ess, lahmc, mog2, reproduce
from leapling.reproduce.pieces import Pieces
from leapling.reproduce.result import Result
from leapling.reproduce.scale import SCALES, Scale
from leapling.training import Preset, Recipe, TrainingStopped, train

RESULTS = Path(__file__).parents[1] / "docs" / "results"
TINY = Scale("quick", (0,), (0,), 20, 60, 8, (60,), 50, 0.01)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A function that runs experiments on SCG and one mixture, a few iterations and draws, in one folder."""
    folder = tmp_path_factory.mktemp("reproduce")
    patch = pytest.MonkeyPatch()
    for module in (ablations, autocorrelation, burn_in, chains, ess, lahmc):
        patch.setattr(module, "PAPER_TARGETS", ("scg",))
    patch.setattr(mog2, "MIXTURES", ("mog2",))
    full = ablations.variants
    patch.setattr(ablations, "variants", lambda settings: dict(list(full(settings).items())[:2]))
    patch.setattr("leapling.reproduce.inertia.NUM_POINTS", 4)
    patch.setattr(
        "leapling.reproduce.baselines.LAHMC_AXES", {"num_steps": [2], "num_trajectories": [2], "refreshment": [1.0]}
    )
    patch.setattr("leapling.tuning.LENGTHS", (5, 20))
    patch.setattr("leapling.tuning.REFINEMENT", {"step_size": (1.0,)})
    patch.setattr("leapling.tuning.STEP_FRACTIONS", (0.5,))
    patch.setitem(SCALES, "quick", TINY)
    original = ess.Lab.preset

    def short(self, target):
        settings = original(self, target)
        recipe = replace(settings.recipe, num_iterations=20, batch_size=8)
        return replace(settings, num_steps=2, width=4, recipe=recipe)

    patch.setattr(ess.Lab, "preset", short)
    yield lambda what: main(["reproduce", what, "--out", str(folder), "--json"]), folder
    patch.undo()


@pytest.mark.slow
def test_every_experiment_runs_and_a_second_run_only_reads(run, capsys, is_long, monkeypatch):
    reproduce, folder = run
    if not is_long:  # what is left out shares its code with what is not
        for name in ("lahmc", "autocorrelation", "burn-in"):
            monkeypatch.delitem(EXPERIMENTS, name)
    assert reproduce("all") == 0
    out, err = capsys.readouterr()
    answer = json.loads(out)
    assert [result["experiment"] for result in answer["results"]] == list(EXPERIMENTS)
    assert "pieces made" in err
    for result in answer["results"]:
        name = result["experiment"]
        stored = json.loads((folder / name / f"{name}.json").read_text())
        assert stored == result
        assert (folder / name / f"{name}.md").read_text() == page_markdown(result)
        assert all(table["rows"] for table in result["tables"])
        assert result["figures"]
        for figure in result["figures"]:
            assert (folder / name / figure["file"]).stat().st_size > 5000
    index = (folder / "index.html").read_text()
    for result in answer["results"]:
        assert all(f'src="{result["experiment"]}/{figure["file"]}"' in index for figure in result["figures"])

    assert reproduce("all") == 0
    out, err = capsys.readouterr()
    assert err.rstrip().splitlines()[-1].startswith("0 pieces made, ")
    assert json.loads(out) == answer


def test_an_interrupted_run_makes_only_what_is_missing(run, capsys):
    """A lost piece is made again to the same result; a damaged one is told."""
    reproduce, folder = run
    assert reproduce("ess") == 0
    before = json.loads(capsys.readouterr().out)
    (folder / "pieces" / "trained-scg-0.npz").unlink()
    damaged = folder / "pieces" / "measured-l2hmc-scg-0.npz"
    damaged.write_bytes(damaged.read_bytes()[:1000])
    assert reproduce("ess") == 0
    out, err = capsys.readouterr()
    assert "measured-l2hmc-scg-0.npz is damaged" in err
    assert "2 pieces made" in err
    assert json.loads(out) == before


def test_a_training_that_stops_early_is_measured_and_said(tmp_path, monkeypatch):
    def stops(*arguments, **options):
        raise TrainingStopped("acceptance collapsed", train(*arguments, **options, progress=False))

    monkeypatch.setattr("leapling.reproduce.lab.train", stops)
    settings = Preset(num_steps=1, recipe=Recipe(num_iterations=5, batch_size=4))

    def experiment(lab):
        assert isinstance(lab.trained("scg", 0, settings=settings), L2HMC)
        return Result("ess", "Title", "Protocol.")

    monkeypatch.setitem(EXPERIMENTS, "ess", experiment)
    for _ in range(2):  # made, and found again
        (result,) = reproduce(["ess"], tmp_path, TINY)
        assert result["notes"] == ["Training stopped early, trained-scg-0: acceptance collapsed."]


def test_pieces_are_made_once_and_again_with_other_settings(tmp_path, capsys):
    calls = []

    def make():
        calls.append(1)
        return {"value": len(calls)}, {"x": np.arange(3.0)}

    for _ in range(2):
        value, arrays = Pieces(tmp_path).get("a", {"n": (1, 2)}, make)
        assert value == {"value": 1}
        np.testing.assert_array_equal(arrays["x"], [0, 1, 2])
    assert Pieces(tmp_path).get("a", {"n": (1, 3)}, make)[0] == {"value": 2}
    assert len(calls) == 2

    def fail():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Pieces(tmp_path).get("b", {}, fail)
    assert [path.name for path in tmp_path.iterdir()] == ["a.npz"]
    with pytest.raises(ValueError, match="not JSON compliant"):
        Pieces(tmp_path).get("c", {}, lambda: ({"value": float("nan")}, {}))


def test_every_experiment_is_committed_at_the_papers_scale():
    for name in EXPERIMENTS:
        assert json.loads((RESULTS / f"{name}.json").read_text())["preset"] == "paper"
