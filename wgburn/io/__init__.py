"""io: tensors to files and back. Owns: file formats. Must not know: modules, optimizers."""

from .safetensors import LazyFile, read_safetensors, write_safetensors
from .state import load, save

__all__ = ["LazyFile", "load", "read_safetensors", "save", "write_safetensors"]
