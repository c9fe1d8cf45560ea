"""x = f(z): coordinates in which a target is better scaled, and an energy pulled back to them."""

from leapling.coordinates.affine import Affine, LowRank, whitened_by, whitening
from leapling.coordinates.base import Coordinates, Pulled

__all__ = ["Affine", "Coordinates", "LowRank", "Pulled", "whitened_by", "whitening"]
