"""Runs on disk: what is written is what is read, and whatever is damaged or foreign is named."""

import json
import subprocess
import sys
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flows import bent, unit

from leapling import arrays, files, store
from leapling.coordinates import Affine, Coordinates, LowRank
from leapling.files import RunError, atomic_path, make_folder
from leapling.kernels import HMC, L2HMC, LAHMC, InCoordinates, Tempering
from leapling.store import fingerprint, load_checkpoint, load_run, same_target, save_checkpoint, save_run
from leapling.targets import mog, scg


def kernel(seed=0, **options):
    return L2HMC(2, 3, widths=(4, 5), key=jax.random.key(seed), dtype=np.float32, **options)


@pytest.fixture
def run(tmp_path):
    save_run(tmp_path, kernel(0), best=kernel(1), settings={"target": "scg"}, training={"status": "finished"})
    return tmp_path


def leaves_equal(a, b):
    return all(np.array_equal(x, y) for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True))


def test_round_trip(run):
    last, header = load_run(run)
    best, _ = load_run(run, "best")
    assert leaves_equal(last, kernel(0))
    assert leaves_equal(best, kernel(1))
    assert header["settings"] == {"target": "scg"}
    assert header["kernel"] == {
        "kind": "L2HMC", "dim": 2, "num_steps": 3, "widths": [4, 5], "context_dim": 0, "heads": "SQT",
        "dtype": "float32",
    }  # fmt: skip
    assert sorted(path.suffix for path in run.iterdir()) == [".json", ".npz"]
    with pytest.raises(ValueError, match="allow_pickle"):  # the arrays load without pickle, objects never do
        arrays.pack({"object": np.array([object()])})


@pytest.mark.parametrize(
    "other",
    [
        HMC(0.3, 7, length_jitter=0.2),
        HMC(0.3, 7, integrator="three-stage"),
        L2HMC(1, 1, widths=(3,), context_dim=2, heads="ST", key=jax.random.key(2)),
        LAHMC(L2HMC(2, 2, key=jax.random.key(2)), 3, 0.7),
        LAHMC(InCoordinates(HMC(0.3, 7), Affine([1.0, 2.0], [[1.0, 0.0], [0.5, 2.0]])), 2),
        InCoordinates(HMC(0.3, 7), Affine([1.0, 2.0], [3.0, 4.0])),
        Tempering(L2HMC(2, 2, context_dim=1, key=jax.random.key(2)), [1.0, 0.5, 0.1]),
        Tempering(HMC(0.3, 7), [1.0, 0.3]),
        InCoordinates(HMC(0.3, 7), LowRank(np.arange(4.0), np.full(4, 2.0), np.linalg.qr(np.ones((4, 1)))[0], [3.0])),
        InCoordinates(HMC(0.3, 7), LowRank(np.arange(4.0), np.full(4, 2.0), np.zeros((4, 0)), [])),
        L2HMC(2, 1, skip=True, key=jax.random.key(2)),
    ],
)
def test_other_kernels_round_trip(tmp_path, other):
    save_run(tmp_path, other)
    loaded = load_run(tmp_path)[0]
    assert leaves_equal(loaded, other)
    assert jax.tree.structure(loaded) == jax.tree.structure(other)


@pytest.mark.parametrize("kind", ["affine", "spline"])
def test_flows_round_trip(tmp_path, kind):
    """Every array, what it maps to, and the shape of both flows in the header."""
    inner = bent("affine", Affine(np.ones(3), np.eye(3) + 0.5), 1)
    other = InCoordinates(HMC(0.3, 7), bent(kind, inner, 4))
    save_run(tmp_path, other)
    loaded, header = load_run(tmp_path)
    assert header["kernel"] == {
        "kind": "InCoordinates",
        "flow": {
            "kind": kind, "num_layers": 4, "width": 6,
            "outer": {"flow": {"kind": "affine", "num_layers": 1, "width": 6, "outer": {"factor": [3, 3]}}},
        },
        "inner": {"kind": "HMC"},
    }  # fmt: skip
    for ours, theirs in zip(*(jax.tree.leaves(eqx.filter(k, eqx.is_array)) for k in (loaded, other)), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    z = jnp.asarray(np.random.default_rng(0).normal(size=(3, 5)))
    np.testing.assert_array_equal(loaded.coordinates.forward(z), other.coordinates.forward(z))


def test_headers_of_before_there_was_a_choice(tmp_path):
    """No word of a linear path, and affine coordinates by the shape of their factor alone, as they still are."""
    other = InCoordinates(kernel(3), Affine([1.0, 2.0], [[1.0, 0.0], [0.5, 2.0]]))
    save_run(tmp_path, other)
    inner = {"kind": "L2HMC", "dim": 2, "num_steps": 3, "widths": [4, 5], "context_dim": 0, "heads": "SQT"}
    old = {"kind": "InCoordinates", "factor": [2, 2], "inner": {**inner, "dtype": "float32"}}
    assert load_run(tmp_path)[1]["kernel"] == old
    edit_header(tmp_path, kernel=old)
    assert leaves_equal(load_run(tmp_path)[0], other)


class Turned(Coordinates):
    """Coordinates of a user's own."""

    @property
    def dim(self):
        return 2

    @property
    def is_affine(self):
        return True

    def forward_and_log_det(self, z):
        return z[::-1], jnp.zeros(z.shape[1:])

    def backward_and_log_det(self, x):
        return x[::-1], jnp.zeros(x.shape[1:])


def test_foreign_coordinates_are_named(tmp_path):
    with pytest.raises(RunError, match="of type Turned cannot be saved; there are Affine, LowRank, Flow"):
        save_run(tmp_path, InCoordinates(HMC(), Turned()))
    save_run(tmp_path, InCoordinates(HMC(), unit(2)))
    edit_header(tmp_path, kernel={"kind": "InCoordinates", "cubic": [2], "inner": {"kind": "HMC"}})
    with pytest.raises(
        RunError, match=r"holds coordinates \{'cubic': \[2\]\}; this version knows Affine, LowRank, Flow"
    ):
        load_run(tmp_path)


def test_flows_are_imported_by_those_who_use_them():
    """`import leapling`, and a run without a flow, load neither FlowJAX nor NumPyro; a flow loads FlowJAX."""
    code = (
        "import sys, tempfile, leapling\n"
        "folder = tempfile.mkdtemp()\n"
        "leapling.save_run(folder, leapling.InCoordinates(leapling.HMC(), leapling.Affine([0.0], [1.0])))\n"
        "leapling.load_run(folder)\n"
        "print([name for name in ('flowjax', 'numpyro') if name in sys.modules])\n"
        "from leapling.coordinates.flow import Flow\n"
        "import jax\n"
        "Flow(leapling.Affine([0.0, 0.0], [1.0, 1.0]), num_layers=1, key=jax.random.key(0))\n"
        "print('flowjax' in sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.split("\n")[:2] == ["[]", "True"], done.stderr[-2000:]


def test_saving_again_leaves_one_set_of_arrays(run):
    save_run(run, kernel(2))
    assert leaves_equal(load_run(run)[0], kernel(2))
    assert len(list(run.glob("*.npz"))) == 1


def arrays_file(run):
    return next(run.glob("kernel-*.npz"))


def damage_truncated(run):
    arrays_file(run).write_bytes(arrays_file(run).read_bytes()[:-40])


def damage_one_bit(run):
    data = bytearray(arrays_file(run).read_bytes())
    data[len(data) // 2] ^= 1
    arrays_file(run).write_bytes(bytes(data))


def damage_missing(run):
    arrays_file(run).unlink()


def damage_header(run):
    (run / "run.json").write_text('{"format": 1, "kernel')


def damage_foreign(run):
    (run / "run.json").write_text('{"name": "something else"}')


def edit_header(run, **changes):
    header = json.loads((run / "run.json").read_text())
    (run / "run.json").write_text(json.dumps({**header, **changes}))


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (damage_truncated, "truncated or was changed"),
        (damage_one_bit, "truncated or was changed"),
        (damage_missing, "is missing, which run.json names"),
        (damage_header, "run.json is damaged"),
        (damage_foreign, "not a run of leapling"),
        (lambda run: (run / "run.json").unlink(), "there is no run in .* make one with `leapling train"),
        (lambda run: edit_header(run, format=99), "has format 99, this version of leapling reads 1"),
        (lambda run: edit_header(run, kernel={"kind": "Gibbs"}), "kind 'Gibbs'; this version knows HMC, L2HMC"),
        (lambda run: edit_header(run, kernel={"kind": "L2HMC", "size": 3}), "configuration that does not fit"),
        (
            lambda run: edit_header(run, kernel={"kind": "L2HMC", "dim": 3, "num_steps": 3, "dtype": "float32"}),
            r"as float32\[.*\] where float32\[.*\] is needed; it is of another kernel|lacks the array",
        ),
    ],
)  # fmt: skip
def test_damage_is_named(run, damage, said):
    damage(run)
    with pytest.raises(RunError, match=said):
        load_run(run)


def test_a_failed_write_leaves_the_old_file(tmp_path):
    path = tmp_path / "value.json"
    files.write_json(path, {"a": 1})

    def write_half(temporary):
        temporary.write_text('{"a": ')
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"), atomic_path(path) as temporary:
        write_half(temporary)
    assert json.loads(path.read_text()) == {"a": 1}
    assert list(tmp_path.iterdir()) == [path]
    with pytest.raises(ValueError, match="not JSON compliant"):
        files.write_json(path, {"a": float("nan")})
    assert json.loads(path.read_text()) == {"a": 1}


def test_output_that_is_not_a_writable_folder(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match=r"cannot write to the output folder .*file .*give another with --out"):
        make_folder(tmp_path / "file")
    with pytest.raises(RunError, match=r"cannot write to the output folder /proc/leapling"):
        make_folder(Path("/proc/leapling"))  # a place where nobody, root included, can write


def test_checkpoints(tmp_path):
    state = {"a": jnp.arange(3.0), "b": jnp.array([True, False])}
    assert load_checkpoint(tmp_path, state, {}) is None
    save_checkpoint(tmp_path, state, {"seed": 1, "recipe": "x"})
    zeros = jax.tree.map(jnp.zeros_like, state)
    assert leaves_equal(load_checkpoint(tmp_path, zeros, {"seed": 1, "recipe": "x"}), state)
    with pytest.raises(RunError, match=r"another seed \(1 there, 2 now\); repeat its settings"):
        load_checkpoint(tmp_path, zeros, {"seed": 2, "recipe": "x"})
    path = tmp_path / store.CHECKPOINT
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(RunError, match=r"checkpoint\.npz is damaged"):
        load_checkpoint(tmp_path, zeros, {"seed": 1, "recipe": "x"})
    np.savez(path, other=np.zeros(2))
    with pytest.raises(RunError, match="is not a checkpoint of leapling"):
        load_checkpoint(tmp_path, zeros, {"seed": 1, "recipe": "x"})


def test_fingerprint_tells_targets_apart():
    stored = json.loads(json.dumps(fingerprint(scg(), 2)))
    same_target(stored, scg(), 2)
    with pytest.raises(RunError, match=r"not the one of the run: at probe point 0 its energy is"):
        same_target(stored, mog(), 2)
    with pytest.raises(RunError, match="on a target of 2 coordinates, the given one has 3"):
        same_target(stored, lambda x: jnp.sum(x**2), 3)

    def half_line(x):
        return jnp.where(x[0] > 0, x[0], jnp.inf)

    assert None in fingerprint(half_line, 1)["energies"]
    same_target(fingerprint(half_line, 1), half_line, 1)
