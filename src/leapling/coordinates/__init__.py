"""x = f(z): coordinates in which a target is better scaled, and an energy pulled back to them.

`Flow` is in `leapling.coordinates.flow`, so that FlowJAX is imported by those alone who use one.
"""

from leapling.coordinates.affine import Affine, LowRank
from leapling.coordinates.base import Coordinates, Pulled
from leapling.coordinates.moments import whitened_by, whitening

__all__ = ["Affine", "Coordinates", "LowRank", "Pulled", "whitened_by", "whitening"]
