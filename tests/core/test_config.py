"""wb.config: sources, their order, and what a bad value says."""

import subprocess
import sys

import pytest

from wgburn.core.config import ALLOWED, DEFAULTS, FILE_NAME, MEMORY_DEFAULTS, Config
from wgburn.core.errors import FileFormatError, ValueRangeError
from wgburn.core.settings import MemorySettings, Settings

pytestmark = pytest.mark.quick


@pytest.fixture
def config(monkeypatch, tmp_path):
    for name in ALLOWED:
        monkeypatch.delenv("WGBURN_" + name.replace(".", "_").upper(), raising=False)
    monkeypatch.chdir(tmp_path)
    return Config()


def test_defaults_and_the_model_name_the_same_settings(config):
    assert set(Settings.model_fields) == {*DEFAULTS, "memory"}
    assert set(MemorySettings.model_fields) == set(MEMORY_DEFAULTS)
    assert set(ALLOWED) == {*DEFAULTS, *(f"memory.{k}" for k in MEMORY_DEFAULTS)}
    model = Settings().model_dump()
    memory = model.pop("memory")
    assert {**model, **{f"memory.{k}": v for k, v in memory.items()}} == config.as_dict()


def test_order_is_code_then_variable_then_file_then_default(config, monkeypatch, tmp_path):
    (tmp_path / FILE_NAME).write_text('debug = 1\nautotune = "off"\n[memory]\nmax_bytes = "2MiB"\n')
    inner = tmp_path / "a" / "b"
    inner.mkdir(parents=True)
    monkeypatch.chdir(inner)
    monkeypatch.setenv("WGBURN_DEBUG", "2")
    assert (config.debug, config.autotune, config.fuse) == (2, "off", True)
    assert config.memory.max_bytes == config.memory["max_bytes"] == 2 << 20
    assert config.source("debug") == "WGBURN_DEBUG"
    assert config.source("autotune") == str(tmp_path / FILE_NAME)
    assert config.source("fuse") == "default"
    config.debug = 3
    assert config.debug == 3
    assert config.source("debug") == "code"
    config.reset()
    assert config.debug == 2


def test_nearest_file_wins(config, monkeypatch, tmp_path):
    (tmp_path / FILE_NAME).write_text("debug = 1\n")
    inner = tmp_path / "a"
    inner.mkdir()
    (inner / FILE_NAME).write_text("debug = 4\n")
    monkeypatch.chdir(inner)
    assert config.debug == 4


def test_reload_keeps_what_code_assigned(config, monkeypatch):
    config.fuse = False
    monkeypatch.setenv("WGBURN_DEBUG", "1")
    monkeypatch.setenv("WGBURN_FUSE", "1")
    assert config.debug == 0
    config.reload()
    assert config.debug == 1
    assert config.fuse is False


def test_override_is_undone_even_after_an_error(config):
    config.debug = 1
    with pytest.raises(ZeroDivisionError), config.override(debug=4, memory={"max_bytes": 10}):
        assert config.debug == 4
        assert config.memory.max_bytes == 10
        raise ZeroDivisionError
    assert config.debug == 1
    assert config.memory.max_bytes is None


@pytest.mark.parametrize(
    "text, value", [("0", False), ("false", False), ("1", True), ("TRUE", True), ("no", False)]
)
def test_fuse_from_text(config, monkeypatch, text, value):
    monkeypatch.setenv("WGBURN_FUSE", text)
    assert config.fuse is value


@pytest.mark.parametrize(
    "name, text",
    [
        ("fuse", "maybe"),
        ("debug", "5"),
        ("debug", "-1"),
        ("debug", "x"),
        ("autotune", "most"),
        ("device", "gpu"),
        ("device", "wgpu:one"),
        ("environment", "../x"),
        ("memory.max_bytes", "lots"),
        ("memory.max_bytes", "0"),
    ],
)
def test_a_bad_variable_names_itself_its_value_and_what_is_allowed(config, monkeypatch, name, text):
    variable = "WGBURN_" + name.replace(".", "_").upper()
    monkeypatch.setenv(variable, text)
    with pytest.raises(ValueRangeError) as caught:
        config.reload()
    message = str(caught.value)
    assert message.startswith(f"{variable} is {text!r}")
    assert ALLOWED[name] in message
    assert "\n" not in message


def test_a_bad_assignment_changes_nothing(config):
    for value in (True, 7, "x", None, [1]):
        with pytest.raises(ValueRangeError, match=r"wb\.config\.debug"):
            config.debug = value
    assert config.debug == 0
    with pytest.raises(AttributeError, match="no setting 'fuze'"):
        config.fuze = False
    with pytest.raises(AttributeError, match="no setting 'fuze'"):
        _ = config.fuze
    with pytest.raises(AttributeError, match="memory"):
        config.memory.max_byte = 1


@pytest.mark.parametrize(
    "text, cause",
    [
        ("fuze = true\n", "unknown setting 'fuze'"),
        ("[memory]\npages = 1\n", "unknown setting 'memory.pages'"),
        ("debug = = 1\n", "not readable as TOML"),
        ('debug = "much"\n', "debug is 'much'"),
        ("memory = 3\n", "unknown setting 'memory'"),
    ],
)
def test_a_bad_file_names_itself(config, tmp_path, text, cause):
    path = tmp_path / FILE_NAME
    path.write_text(text)
    with pytest.raises((FileFormatError, ValueRangeError)) as caught:
        _ = config.debug
    assert str(path) in str(caught.value)
    assert cause in str(caught.value)
    assert "\n" not in str(caught.value)


def test_defaults_are_read_without_pydantic(tmp_path):
    code = (
        "import sys; from wgburn.core.config import config; "
        "assert config.fuse is True and config.memory.max_bytes is None; "
        "assert 'pydantic' not in sys.modules; config.debug = 1; assert 'pydantic' in sys.modules"
    )
    env = {"PATH": "", "SYSTEMROOT": ""}
    subprocess.run([sys.executable, "-c", code], check=True, cwd=tmp_path, env=env)


def test_a_budget_can_be_lifted_and_bad_ones_are_refused(config):
    with config.override(memory={"max_bytes": "1MiB"}):
        with config.override(memory={"max_bytes": None}):
            assert config.memory.max_bytes is None
        assert config.memory.max_bytes == 1 << 20
    for bad in (3, {"max_bytes": 0}):
        with pytest.raises(ValueRangeError, match="memory"), config.override(memory=bad):
            pass
