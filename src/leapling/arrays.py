"""The arrays of a kernel or a training state by name, as they lie in a file. No pickle."""

import zipfile
from io import BytesIO
from pathlib import Path
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from leapling.files import RunError

TreeLike = TypeVar("TreeLike")


def to_arrays(tree: Any) -> dict[str, np.ndarray]:
    leaves = jax.tree_util.tree_leaves_with_path(eqx.filter(tree, eqx.is_array))
    return {jax.tree_util.keystr(path, simple=True, separator="."): np.asarray(leaf) for path, leaf in leaves}


def from_arrays(like: TreeLike, arrays: dict[str, np.ndarray], where: Path) -> TreeLike:
    """`like` with its arrays replaced by the stored ones of the same names, shapes and dtypes."""
    expected = to_arrays(like)
    if missing := sorted(expected.keys() - arrays.keys()):
        raise RunError(f"{where} lacks the array {missing[0]!r} (and {len(missing) - 1} more); it is of another kernel")
    for name, array in expected.items():
        stored = arrays[name]
        if (stored.shape, stored.dtype) != (array.shape, array.dtype):
            raise RunError(
                f"{where} holds {name!r} as {stored.dtype}{list(stored.shape)} where {array.dtype}{list(array.shape)} "
                "is needed; it is of another kernel"
            )
    real, static = eqx.partition(like, eqx.is_array)
    names = iter(expected)
    return eqx.combine(jax.tree.map(lambda _: jnp.asarray(arrays[next(names)]), real), static)


def pack(arrays: dict[str, np.ndarray]) -> bytes:
    buffer = BytesIO()
    np.savez(buffer, allow_pickle=False, **arrays)
    return buffer.getvalue()


def unpack(data: bytes, where: Path) -> dict[str, np.ndarray]:
    try:
        with np.load(BytesIO(data), allow_pickle=False) as stored:
            return {name: stored[name] for name in stored.files}
    except (zipfile.BadZipFile, ValueError, EOFError, KeyError, OSError) as error:
        raise RunError(f"{where} is damaged or not an array file ({error}); train again, or restore a copy") from error
