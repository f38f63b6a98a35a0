"""io: tensors to files and back. Owns: file formats. Must not know: modules, optimizers."""

from .safetensors import LazyFile, read_safetensors, write_safetensors
from .state import load, save
from .torchfile import TorchFile, read_torch
from .weights import Weights, open_weights

__all__ = [
    "LazyFile",
    "TorchFile",
    "Weights",
    "load",
    "open_weights",
    "read_safetensors",
    "read_torch",
    "save",
    "write_safetensors",
]
