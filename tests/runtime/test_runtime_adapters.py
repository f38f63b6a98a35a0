"""Which adapters are listed, in which order, and what is said when there are none."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from wgburn_runtime import adapters
from wgburn_runtime.driver import AdapterInfo
from wgburn_runtime.errors import AdapterUnavailableError
from wgburn_runtime.fake import drive
from wgburn_runtime.native import device
from wgburn_runtime.native.device import Adapter


def card(name: str, backend: str, kind: str, vendor: int, number: int) -> Adapter:
    return Adapter(None, AdapterInfo("native", 0, name, backend, kind), vendor, number)


#: A laptop as wgpu lists it: every card once per backend, OpenGL without numbers.
LAPTOP = [
    card("Arc", "Vulkan", "IntegratedGPU", 0x8086, 1),
    card("llvmpipe", "Vulkan", "CPU", 0x10005, 0),
    card("RTX", "Vulkan", "DiscreteGPU", 0x10DE, 7),
    card("RTX", "Vulkan", "DiscreteGPU", 0x10DE, 7),  # two equal cards
    card("Arc", "OpenGL", "IntegratedGPU", 0x8086, 0),
    card("RTX/PCIe", "OpenGL", "DiscreteGPU", 0x10DE, 0),
    card("Arc", "D3D12", "IntegratedGPU", 0x8086, 1),
    card("Old", "OpenGL", "unknown", 0x1234, 0),
]


def names(found: list[Adapter]) -> list[str]:
    return [f"{a.info.index} {a.info.name} {a.info.backend}" for a in found]


def test_one_entry_a_card_fastest_kind_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device, "list_adapters", lambda: list(LAPTOP))
    listed = adapters._adapters("high-performance")
    assert names(listed) == [
        "0 RTX Vulkan",
        "1 RTX Vulkan",
        "2 Arc Vulkan",
        "3 Old OpenGL",
        "4 llvmpipe Vulkan",
    ]
    assert names(adapters._adapters("low-power"))[:2] == ["0 Arc Vulkan", "1 RTX Vulkan"]


def test_none_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device, "list_adapters", list)
    monkeypatch.setattr(sys, "platform", "linux")
    (entry,) = adapters.enumerate_native()
    assert not entry.available
    assert "mesa-vulkan-drivers" in entry.reason
    assert "\n" not in entry.reason
    with pytest.raises(AdapterUnavailableError, match="mesa-vulkan-drivers"):
        drive(adapters.open_native())


def test_without_wgpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "wgburn_runtime.native.device", None)
    (entry,) = adapters.enumerate_native()
    assert not entry.available
    assert "pip install 'wgpu" in entry.reason


def test_wrong_requests() -> None:
    with pytest.raises(
        AdapterUnavailableError, match="no native adapter has index 99; those found are 0: "
    ):
        drive(adapters.open_native(99))
    with pytest.raises(AdapterUnavailableError, match="high-performance"):
        drive(adapters.open_native(0, "turbo"))


def test_real_adapters_describe_themselves() -> None:
    found = adapters.enumerate_native()
    assert [info.index for info in found] == list(range(len(found)))
    for info in found:
        assert info.available and info.kind == "native"
        assert info.name and info.backend and info.adapter_type
        assert info.limits["maxStorageBufferBindingSize"] >= 128 << 20
        assert info.features <= {"shader-f16", "subgroups", "timestamp-query"}


def test_package_import_is_free_of_wgpu_and_looking_is_quiet() -> None:
    code = (
        "import sys\n"
        "import wgburn_runtime.adapters, wgburn_runtime.queue, wgburn_runtime.fake\n"
        "assert 'wgpu' not in sys.modules and 'cffi' not in sys.modules\n"
        "import os\n"
        "before = dict(os.environ)\n"
        "from wgburn_runtime.fake import drive\n"
        "drive(wgburn_runtime.adapters.open_native()).close()\n"
        "assert dict(os.environ) == before\n"
        "print('done')\n"
    )
    environment = {k: v for k, v in os.environ.items() if k != "XDG_RUNTIME_DIR"}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environment, timeout=60
    )
    assert (done.stdout, done.stderr, done.returncode) == ("done\n", "", 0)
