"""Writes docs/torch_names.md: what torch calls it, what wgburn calls it.

The table is found by looking at both packages, so it lists what exists. Only names that differ, and
remarks, are written here. Run it after adding a public name: python scripts/torch_names.py
(needs torch); tests/ops/test_torch_names.py fails when the file and the packages disagree.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from types import ModuleType
from typing import Any

PAGE = Path(__file__).parents[1] / "docs" / "torch_names.md"

#: torch's namespace, ours, heading.
SPACES = (
    ("torch", "wb", "Functions and dtypes"),
    ("torch.Tensor", "wb.Tensor", "Tensor methods and attributes"),
    ("torch.nn", "wb.nn", "Modules"),
    ("torch.nn.functional", "wb.nn.functional", "Functions of modules"),
    ("torch.nn.init", "wb.nn.init", "Initialisers"),
    ("torch.nn.utils", "wb.nn.utils", "Utilities of modules"),
    ("torch.optim", "wb.optim", "Optimizers"),
    ("torch.optim.lr_scheduler", "wb.optim.lr_scheduler", "Schedulers"),
)

#: Names that differ, under the heading "Other names". Not everything is a call on the same object.
OTHER = {
    "torch.bool": "wb.bool_",
    "torch.half": "wb.float16",
    "torch.float": "wb.float32",
    "torch.double": "wb.float64",
    "torch.int": "wb.int32",
    "torch.long": "wb.int32",
    "torch.device": "wb.Device",
    "torch.set_default_device": "wb.set_default_device",
    "torch.manual_seed": "wb.Device.seed",
    "torch.cuda.synchronize": "wb.Device.synchronize",
    "torch.cuda.memory_stats": "wb.Device.memory",
    "torch.cuda.empty_cache": "wb.Device.memory_cleanup",
    "torch.cuda.device_count": "wb.Device.enumerate",
    "torch.autograd.grad": "wb.gradient_of",
    "torch.func.grad": "wb.grad",
    "torch.func.grad_and_value": "wb.value_and_grad",
    "torch.utils.checkpoint.checkpoint": "wb.checkpoint",
    "torch.linalg.vector_norm": "wb.norm",
    "torch.linalg.matrix_power": "wb.matrix_power",
    "torch.linalg.multi_dot": "wb.chain_matmul",
    "torch.linalg.cross": "wb.cross",
    "torch.linalg.diagonal": "wb.diagonal",
    "torch.special.expm1": "wb.expm1",
    "torch.special.xlogy": "wb.xlogy",
    "torch.special.erf": "wb.erf",
    "torch.Tensor.cuda": "wb.Tensor.to",
    "torch.Tensor.long": "wb.Tensor.int",
    "torch.Tensor.type_as": "wb.Tensor.to",
}

#: What a user of torch would get wrong, by our name.
REMARKS = {
    "wb.Tensor.size": "the number of elements; the dimensions are `x.shape`",
    "wb.Tensor.data": "detached; setting it replaces the value",
    "wb.Tensor.view": "as reshape: never fails for its layout",
    "wb.Tensor.type": "takes a wgburn dtype",
    "wb.argmax": "positions are int32",
    "wb.argsort": "always stable",
    "wb.sort": "always stable",
    "wb.scatter": "of several sources for one place the last wins, always",
    "wb.index_copy": "of several slices for one place the last stays, always",
    "wb.unique": "reads its input",
    "wb.nonzero": "reads its input",
    "wb.sum": "integers sum in int32",
    "wb.save": "writes safetensors",
    "wb.load": "reads safetensors and torch's state dicts, never runs code",
    "wb.chain_matmul": "the order of products is chosen; multi_dot takes a list",
    "wb.Device.enumerate": "lists devices",
    "wb.int32": "the integer of indices and sums on every device",
    "wb.gradient_of": "one output",
}


def resolve(name: str) -> Any:
    """The object of a dotted name that starts with wb or torch. Raises AttributeError."""
    head, *rest = name.split(".")
    found: Any = importlib.import_module("wgburn" if head == "wb" else head)
    path = found.__name__
    for part in rest:
        path = f"{path}.{part}"
        try:
            found = getattr(found, part)
        except AttributeError:
            if not isinstance(found, ModuleType):
                raise
            try:
                found = importlib.import_module(path)
            except ModuleNotFoundError:
                raise AttributeError(f"{name}: no {path}") from None
    return found


def public(space: Any) -> set[str]:
    """Names of a package, module or class that a user is meant to see."""
    listed = getattr(space, "__all__", None)
    names = set(listed) if listed is not None else {n for n in dir(space) if n[0] != "_"}
    return {n for n in names if not isinstance(getattr(space, n, None), ModuleType)}


def _theirs(space: Any) -> set[str]:
    """torch's lists of public names leave out much of what its pages describe."""
    names = {n for n in dir(space) if n[0] != "_"}
    if isinstance(space, type):
        return names

    def shown(value: Any) -> bool:
        kind = type(value).__name__
        home = getattr(value, "__module__", None) or ""
        return kind == "dtype" or (
            callable(value) and not home.startswith(("typing", "collections", "builtins"))
        )

    return {n for n in names if shown(getattr(space, n))} | {"from_numpy"} & names


def pairs() -> list[tuple[str, list[tuple[str, str]]]]:
    """(heading, [(torch's name, ours)]) for everything that both have."""
    out = []
    for theirs, ours, heading in SPACES:
        both = _theirs(resolve(theirs)) & public(resolve(ours))
        out.append((heading, [(f"{theirs}.{n}", f"{ours}.{n}") for n in sorted(both)]))
    return [*out, ("Other names", sorted(OTHER.items()))]


def page() -> str:
    """The text of docs/torch_names.md."""
    sections = pairs()
    count = sum(len(rows) for _, rows in sections)
    lines = [
        "# torch's names in wgburn",
        "",
        f"{count} names, found by looking at both packages (`python scripts/torch_names.py` writes",
        "this page). Meanings are torch's unless a remark says otherwise. `wb` is wgburn.",
    ]
    for heading, rows in sections:
        lines += ["", f"## {heading}", "", "| torch | wgburn | remark |", "| --- | --- | --- |"]
        lines += [f"| {a} | {b} | {REMARKS.get(b, '')} |".replace("|  |", "| |") for a, b in rows]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    print(f"{PAGE}: {sum(len(rows) for _, rows in pairs())} names")
