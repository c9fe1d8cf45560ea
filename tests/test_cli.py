"""The command line as a user meets it: folders that follow on from each other, exit codes, and plain errors."""

import json
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import jax
import numpy as np
import pytest

from leapling.cli import main

OWN_TARGET = """
import jax.numpy as jnp

def bowl(x):
    return 0.5 * jnp.sum(x**2) + 0.1 * jnp.sum(x**4)

def other(x):
    return jnp.sum(x**2)

def vector(x):
    return x**2

def nowhere(x):
    return jnp.sum(x) * jnp.nan

def broken(x):
    return x @ jnp.ones(77)
"""
SMALL = ["--num-steps", "3", "--num-iterations", "300", "--batch-size", "32"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    (folder / "own.py").write_text(OWN_TARGET)
    return folder


@pytest.fixture(scope="module")
def scg(folder):
    assert main(["train", "scg", *SMALL, "--out", str(folder / "scg")]) == 0
    return str(folder / "scg")


@pytest.fixture(scope="module")
def own(folder):
    assert main(["train", f"{folder}/own.py:bowl", "--dim", "3", *SMALL, "--out", str(folder / "own")]) == 0
    return str(folder / "own")


def answer(capsys, arguments):
    """Exit code and the JSON object, which must be all there is on standard output."""
    capsys.readouterr()
    code = main([*arguments, "--json"])
    return code, json.loads(capsys.readouterr().out)


def refusal(capsys, arguments):
    """The one sentence on standard error of a command that must exit with 2."""
    capsys.readouterr()
    code = main(arguments)
    out, err = capsys.readouterr()
    assert code == 2
    assert out == ""
    assert "Traceback" not in err
    lines = [line for line in err.splitlines() if line.startswith("leapling: ")]
    assert len(lines) == 1
    return lines[0]


def test_each_folder_is_read_by_the_next_command(scg, capsys):
    code, drawn = answer(capsys, ["sample", scg, "--chains", "50", "--draws", "300"])
    assert code == 0
    assert (drawn["num_chains"], drawn["num_draws"], drawn["start"]) == (50, 300, "exact draws")
    code, figures = answer(capsys, ["diagnose", scg])
    assert code == 0
    assert {"ess_paper", "ess_paper_code", "min_ess", "min_ess_bulk", "split_rhat_max"} <= figures.keys()
    assert figures["ess_paper_truth"] == "true"
    assert figures == json.loads((Path(scg) / "diagnose.json").read_text())
    code, report = answer(capsys, ["check", scg])
    assert code == 0
    assert report["passed"] is True
    assert report == json.loads((Path(scg) / "check.json").read_text())


def test_draws_in_another_folder_make_it_a_run(scg, own, folder, capsys):
    other = str(folder / "other")
    code, drawn = answer(capsys, ["sample", scg, "--chains", "10", "--draws", "20", "--out", other])
    assert code == 0
    assert drawn["file"] == f"{other}/draws.nc"
    assert answer(capsys, ["diagnose", other])[1]["num_chains"] == 10
    arguments = ["sample", own, "--target", f"{folder}/own.py:bowl", "--out", other]
    assert "already holds another run" in refusal(capsys, arguments)


def test_version(capsys):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("leapling 0.")


def test_a_finished_run_is_not_done_again_nor_overwritten(scg, folder, capsys):
    before = (Path(scg) / "run.json").read_bytes()
    code, summary = answer(capsys, ["train", "scg", *SMALL, "--out", scg])
    assert code == 0
    assert summary["iterations"] == 300
    assert "already holds another run; give another --out" in refusal(
        capsys, ["train", "scg", *SMALL, "--seed", "1", "--out", scg]
    )
    assert (Path(scg) / "run.json").read_bytes() == before


def test_own_target(own, folder, capsys):
    assert "repeat it, --target" in refusal(capsys, ["sample", own])
    assert "is not the one of the run" in refusal(capsys, ["sample", own, "--target", f"{folder}/own.py:other"])
    target = ["--target", f"{folder}/own.py:bowl"]
    code, drawn = answer(capsys, ["sample", own, *target, "--chains", "20", "--draws", "100"])
    assert code == 0
    assert drawn["start"] == "N(0, I)"
    assert drawn["num_warmup"] == 1000
    assert answer(capsys, ["diagnose", own])[1]["ess_paper_truth"] == "estimated"
    code, report = answer(capsys, ["check", own, *target])
    assert code == 0
    assert "on a stand-in" in {law["status"] for law in report["laws"]}
    assert "--start exact needs a target with exact draws" in refusal(
        capsys, ["sample", own, *target, "--start", "exact"]
    )


def test_check_exits_with_1_when_a_law_fails(scg, folder, capsys, monkeypatch):
    """A kernel whose accept step is wrong, under the very same command."""
    from leapling.kernels import base

    jax.clear_caches()  # what was compiled before would still be right
    right = base.log_accept_ratio
    monkeypatch.setattr(base, "log_accept_ratio", lambda *a: (-right(*a)[0], right(*a)[1]))
    code, report = answer(capsys, ["check", scg, "--out", str(folder / "failed")])
    jax.clear_caches()
    assert code == 1
    assert report["passed"] is False


def test_dry_run(folder, capsys):
    code, cost = answer(capsys, ["train", "scg", *SMALL, "--dry-run", "--out", str(folder / "dry")])
    assert code == 0
    assert cost["gradients"] == 32 * (300 * 3 + 1)
    assert {"seconds", "compile_seconds", "memory_bytes"} <= cost.keys()
    assert not (folder / "dry").exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["train", "scgg"], "there is no target 'scgg' (did you mean 'scg'?)"),
        (["train", "{}/own.py:bowl"], "number of coordinates is not known"),
        (["train", "{}/own.py:missing", "--dim", "2"], "no attribute 'missing'"),
        (["train", "{}/nothing.py:bowl", "--dim", "2"], "nothing.py"),
        (["train", "{}/own.py:vector", "--dim", "2"], "must return a scalar"),
        (["train", "{}/own.py:broken", "--dim", "2"], "on one point of shape (2,)"),
        (["train", "{}/own.py:nowhere", "--dim", "2"], "the energy is nan at 200 of 200 starting points"),
        (["train", "scg", "--dim", "3"], "dim says 3, the target says 2"),
        (["train", "scg", "--step-size", "0"], "step_size must be a finite number above 0, got 0"),
        (["train", "scg", "--step-size", "-1"], "step_size must be a finite number above 0, got -1"),
        (["train", "scg", "--num-steps", "0"], "num_steps must be at least 1, got 0"),
        (["train", "scg", "--batch-size", "0"], "batch_size must be above 0, got 0"),
        (["sample", "{}/nothing"], "there is no run in"),
        (["check", "{}/nothing"], "there is no run in"),
        (["diagnose", "{}/nothing"], "there is no run in"),
    ],
)
def test_bad_input_is_one_sentence_and_exit_code_2(folder, capsys, arguments, said):
    arguments = [argument.format(folder) for argument in arguments]
    if arguments[0] == "train":
        arguments += ["--out", str(folder / "refused")]
    assert said in refusal(capsys, arguments)


@pytest.mark.parametrize("out", ["/proc/leapling", "{}/own.py"])
def test_unwritable_output_is_refused_before_any_work(folder, capsys, out):
    out = out.format(folder)
    assert f"cannot write to the output folder {out}" in refusal(capsys, ["train", "scg", "--out", out])
    assert "cannot write to the output folder" in refusal(capsys, ["demo", "--out", out])


def test_damaged_run_is_named(scg, folder, capsys):
    copy = folder / "damaged"
    copy.mkdir()
    for path in Path(scg).iterdir():
        data = path.read_bytes()
        (copy / path.name).write_bytes(data[:-9] if path.suffix == ".npz" else data)
    assert "truncated or was changed" in refusal(capsys, ["sample", str(copy)])
    assert "truncated or was changed" in refusal(capsys, ["check", str(copy)])
    (copy / "draws.nc").write_bytes(b"nothing")
    assert "not a readable file of draws" in refusal(capsys, ["diagnose", str(copy)])


def test_debug_shows_the_traceback():
    with pytest.raises(ValueError, match="there is no target"):
        main(["train", "scgg", "--debug"])


def test_unknown_option_exits_with_2(capsys):
    with pytest.raises(SystemExit) as stopped:
        main(["train", "scg", "--presett", "quick"])
    assert stopped.value.code == 2


# --- a process that is killed -------------------------------------------------------------------------------------


def start(out, num_iterations):
    shape = [
        "--num-steps",
        "3",
        "--batch-size",
        "50",
        "--width",
        "5",
        "--num-iterations",
        str(num_iterations),
    ]
    return subprocess.Popen(
        [sys.executable, "-m", "leapling", "train", "scg", *shape, "--out", str(out)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )


def wait_for_checkpoint(out, process):
    while not (out / "checkpoint.npz").exists() and process.poll() is None:
        time.sleep(0.02)


def final_arrays(out):
    with np.load(next(Path(out).glob("kernel-*.npz"))) as stored:
        return {name: stored[name] for name in stored.files}


@pytest.mark.slow
def test_killed_training_resumes_to_the_same_bits(tmp_path, is_long):
    """SIGKILL at random moments from the first checkpoint on, then one run to the end."""
    num_kills, num_iterations = (5, 30_000) if is_long else (2, 10_000)
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    process = start(whole, num_iterations)
    _, err = process.communicate()
    assert process.returncode == 0, err
    moments = random.Random()
    for kill in range(num_kills):
        process = start(killed, num_iterations)
        wait_for_checkpoint(killed, process)
        time.sleep(moments.uniform(0, 2))
        process.kill()
        _, err = process.communicate()
        assert not (killed / "run.json").exists(), f"the run ended before kill {kill + 1}"
    process = start(killed, num_iterations)
    _, err = process.communicate()
    assert process.returncode == 0, err
    assert "going on from iteration" in err
    expected, resumed = final_arrays(whole), final_arrays(killed)
    assert expected.keys() == resumed.keys()
    assert all(np.array_equal(expected[name], resumed[name]) for name in expected)
    assert sorted(path.suffix for path in killed.iterdir()) == [".json", ".npz"]


def test_ctrl_c_says_that_nothing_is_lost(tmp_path):
    process = start(tmp_path, 30_000)
    wait_for_checkpoint(tmp_path, process)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 2
    assert "interrupted; what was written before is kept, and the same command goes on from it" in err
    assert "Traceback" not in err
    assert (tmp_path / "checkpoint.npz").exists()
