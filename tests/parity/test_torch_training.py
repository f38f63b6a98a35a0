"""The seed CNN beside the same model in torch: weights copied over, dropout off."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest
from browser import seed_training

import wgburn as wb

torch = pytest.importorskip("torch", reason="torch is not installed: parity is not tested")

pytestmark = pytest.mark.slow
BATCH, STEPS = 64, 30
#: In front of BatchNorm the gradient of a convolution's bias is 0; what remains is rounding.
EXEMPT = ("features.0.bias", "features.4.bias")


def twin(state: dict[str, np.ndarray]) -> torch.nn.Module:
    """The classifier in torch, by the same parameter names."""
    nn = torch.nn

    class Twin(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            conv = [nn.Conv2d(1, 64, 3), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(2)]
            conv += [nn.Conv2d(64, 64, 3), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(2)]
            self.features = nn.Sequential(*conv)
            dense = [nn.Flatten(), nn.Linear(1600, 128), nn.GELU(), nn.Dropout(0.0)]
            dense += [nn.Linear(128, 128), nn.GELU(), nn.Dropout(0.0), nn.Linear(128, 10)]
            self.classifier = nn.Sequential(*dense)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.classifier(self.features(x))

    model = Twin()
    model.load_state_dict({k: torch.from_numpy(np.array(v)) for k, v in state.items()})
    return model


def without_dropout(trainer: seed_training.Trainer) -> None:
    for module in trainer.model.modules():
        if isinstance(module, wb.nn.Dropout):
            module.p = 0.0


def torch_step(model: torch.nn.Module, data: tuple[np.ndarray, np.ndarray]) -> torch.Tensor:
    images, labels = data
    loss = torch.nn.functional.cross_entropy(
        model(torch.from_numpy(images)), torch.from_numpy(labels.astype(np.int64))
    )
    model.zero_grad()
    loss.backward()
    return loss


def test_losses_of_a_slow_training_agree(device: wb.Device) -> None:
    """30 steps at lr 1e-4: losses within 1e-3 of torch's."""
    trainer = seed_training.Trainer(device, 1e-4)
    without_dropout(trainer)
    model = twin(asyncio.run(trainer.state()))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    worst = 0.0
    for _, data in zip(range(STEPS), seed_training.batches(BATCH), strict=False):
        theirs = torch_step(model, data)
        optimizer.step()
        ours = asyncio.run(trainer.step(*data))
        worst = max(worst, abs(ours - theirs.item()))
    print(f"{device}: worst loss difference to torch over {STEPS} steps {worst:.1e}")
    assert worst < 1e-3


def test_gradients_from_one_state_agree(device: wb.Device) -> None:
    """Loss within 1e-5 and gradients within 1e-4 norm-wise of torch's in float64, at three states.

    float64, because torch's own float32 gradient of the first convolution is 2e-4 off (ours 4e-6).
    Convolution gradients of single steps may differ more where a ReLU's or a pool's input lies
    within rounding of a kink; at least two of the three states must be free of that.
    """
    trainer = seed_training.Trainer(device, 1e-3)
    without_dropout(trainer)
    jumps = 0
    for _, data in zip(range(3), seed_training.batches(BATCH), strict=False):
        model = twin(asyncio.run(trainer.state())).double()
        theirs = torch_step(model, (data[0].astype(np.float64), data[1]))
        loss, grads = asyncio.run(trainer.gradients(*data))
        assert abs(loss - theirs.item()) < 1e-5
        far = {}
        for name, p in model.named_parameters():
            assert p.grad is not None
            truth = p.grad.numpy()
            off = float(np.linalg.norm(grads[name] - truth) / np.linalg.norm(truth))
            if off >= 1e-4 and name not in EXEMPT:
                far[name] = off
        assert not [k for k in far if k.startswith("classifier")], far
        assert all(v < 1e-2 for v in far.values()), far
        jumps += bool(far)
        asyncio.run(trainer.optimizer.step_async())
    assert jumps <= 1
