"""Data on the host: readers of data files, shuffled batches. Yields numpy arrays, no tensors."""

from .batches import Batches
from .idx import find_idx, read_idx
from .mnist import Digits, load_mnist

__all__ = ["Batches", "Digits", "find_idx", "load_mnist", "read_idx"]
