"""State dicts of whole models, made by torch: they load, give equal outputs, and go back."""

import numpy as np
import pytest

import wgburn as wb
from wgburn import nn

torch = pytest.importorskip("torch")
T = torch.nn
FORMATS = pytest.mark.parametrize("format", ["pt", "legacy", "safetensors"])


class Residual:
    """The block of ResNet-18, for either library."""

    def make(self, lib, module, inside, out, stride):
        module.conv1 = lib.Conv2d(inside, out, 3, stride, 1, bias=False)
        module.bn1 = lib.BatchNorm2d(out)
        module.conv2 = lib.Conv2d(out, out, 3, 1, 1, bias=False)
        module.bn2 = lib.BatchNorm2d(out)
        module.downsample = None
        if stride != 1 or inside != out:
            module.downsample = lib.Sequential(
                lib.Conv2d(inside, out, 1, stride, bias=False), lib.BatchNorm2d(out)
            )

    def run(self, module, x):
        y = module.bn2(module.conv2(module.bn1(module.conv1(x)).relu()))
        return (y + (x if module.downsample is None else module.downsample(x))).relu()


def resnet(lib, width=4, classes=5):
    """ResNet-18's shape and names, narrow."""
    rule = Residual()

    class Block(lib.Module):
        def __init__(self, *sizes):
            super().__init__()
            rule.make(lib, self, *sizes)

        def forward(self, x):
            return rule.run(self, x)

    class Net(lib.Module):
        def __init__(self):
            super().__init__()
            self.conv1 = lib.Conv2d(3, width, 7, 2, 3, bias=False)
            self.bn1 = lib.BatchNorm2d(width)
            self.maxpool = lib.MaxPool2d(3, 2, 1)
            inside = width
            for i in range(4):
                out = width << i
                blocks = [Block(inside, out, 1 if i == 0 else 2), Block(out, out, 1)]
                setattr(self, f"layer{i + 1}", lib.Sequential(*blocks))
                inside = out
            self.avgpool = lib.AdaptiveAvgPool2d((1, 1))
            self.fc = lib.Linear(inside, classes)

        def forward(self, x):
            x = self.maxpool(self.bn1(self.conv1(x)).relu())
            for i in range(4):
                x = getattr(self, f"layer{i + 1}")(x)
            return self.fc(self.avgpool(x).flatten(1))

    return Net()


def bert(lib, width=16, layers=2):
    """BERT's shape: three embeddings, a norm, post-norm layers with exact GELU, a pooler."""

    class Net(lib.Module):
        def __init__(self):
            super().__init__()
            self.word_embeddings = lib.Embedding(40, width, padding_idx=0)
            self.position_embeddings = lib.Embedding(12, width)
            self.token_type_embeddings = lib.Embedding(2, width)
            self.norm = lib.LayerNorm(width, eps=1e-12)
            layer = lib.TransformerEncoderLayer(
                width, 2, 4 * width, 0.1, "gelu", layer_norm_eps=1e-12, batch_first=True
            )
            # torch would warn about a fast path of its own.
            plain = {"enable_nested_tensor": False} if lib is T else {}
            self.encoder = lib.TransformerEncoder(layer, layers, **plain)
            self.pooler = lib.Linear(width, width)

        def forward(self, tokens):
            words, places = self.word_embeddings(tokens), self.position_embeddings.weight
            kinds = self.token_type_embeddings.weight[0]
            x = self.norm(words + places[: tokens.shape[1]] + kinds)
            x = self.encoder(x, src_key_padding_mask=tokens == 0)
            return self.pooler(x[:, 0]).tanh()

    return Net()


def lstm(lib):
    """Two layers, both ways, over embedded tokens."""

    class Net(lib.Module):
        def __init__(self):
            super().__init__()
            self.embed = lib.Embedding(20, 6)
            self.lstm = lib.LSTM(6, 5, num_layers=2, bidirectional=True, batch_first=True)
            self.out = lib.Linear(10, 3)

        def forward(self, tokens):
            return self.out(self.lstm(self.embed(tokens))[0][:, -1])

    return Net()


def tokens(most, *shape):
    found = np.random.default_rng(5).integers(1, most, shape).astype(np.int32)
    found[0, 6:] = 0
    return found


MODELS = {
    "resnet": (resnet, np.random.default_rng(4).standard_normal((2, 3, 40, 33), np.float32)),
    "bert": (bert, tokens(40, 3, 9)),
    "lstm": (lstm, tokens(20, 3, 9)),
}


@pytest.fixture(scope="module", params=MODELS)
def pair(request):
    """A function for either library, a trained-looking torch model, an input, torch's output."""
    make, x = MODELS[request.param]
    torch.manual_seed(0)
    model = make(T)
    with torch.no_grad():
        for name, value in model.state_dict().items():
            # Running statistics and norms other than the ones a new model has.
            if name.endswith("running_mean"):
                value.normal_()
            elif name.endswith("running_var") or ("norm" in name and name.endswith("weight")):
                value.uniform_(0.5, 1.5)
            elif name.endswith("num_batches_tracked"):
                value.fill_(7)
        model.eval()
        given = torch.from_numpy(x)
        want = model(given.long() if x.dtype == np.int32 else given).numpy()
    return make, model, x, want


def write(state, path, format):
    if format == "safetensors":
        from safetensors.torch import save_file

        save_file(state, path)
    else:
        torch.save(state, path, _use_new_zipfile_serialization=format == "pt")


@FORMATS
def test_a_model_of_torch_loads(device, pair, tmp_path, format):
    make, model, x, want = pair
    write(model.state_dict(), tmp_path / "weights", format)
    with wb.use_device(device):
        ours = make(nn).eval()
        ours.load_state_dict(wb.load(tmp_path / "weights"))
        with wb.no_grad():
            got = ours(wb.tensor(x)).numpy()
    assert got.shape == want.shape
    assert np.abs(got - want).max() < 1e-4


def test_what_wgburn_saves_loads_in_torch(device, pair, tmp_path):
    from safetensors.torch import load_file

    make, _, x, _ = pair
    with wb.use_device(device):
        device.seed(3)
        ours = make(nn).eval()
        with wb.no_grad():
            want = ours(wb.tensor(x)).numpy()
    wb.save(ours.state_dict(), tmp_path / "weights")
    theirs = make(T).eval()
    theirs.load_state_dict(load_file(tmp_path / "weights"))
    with torch.no_grad():
        given = torch.from_numpy(x)
        got = theirs(given.long() if x.dtype == np.int32 else given).numpy()
    assert np.abs(got - want).max() < 1e-4
