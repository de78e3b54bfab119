#!/bin/sh
# Builds the wheel, looks into it, and runs it in a fresh environment beside PyPI's Events and python-daemon, whose
# top-level names are ours: whichever comes first, and when they go again, our commands must work.
# Usage: wheel_check.sh PYTHON   (one that has the package `build`)
set -eu

python="$1"
root="$(cd "$(dirname "$0")/.." && pwd)"
case "$python" in /*) ;; *) python="$PWD/$python" ;; esac
scratch="$(mktemp -d)"
trap 'rm -rf "$scratch"' EXIT
# From here on nothing of the checkout is in the way, as it is for a user.
cd "$scratch"

echo 'wheel: build (a source archive, then the wheel from it)'
"$python" -m build --outdir "$scratch/dist" "$root" >"$scratch/build.log" 2>&1 || { cat "$scratch/build.log"; exit 1; }
wheel="$(ls "$scratch"/dist/*.whl)"

echo "wheel: contents of $(basename "$wheel")"
"$python" - "$wheel" <<'PYTHON'
import sys
import zipfile

names = zipfile.ZipFile(sys.argv[1]).namelist()
# Of `memforest_daemon-0.1.0.data/scripts/memforestd` the installer puts only the script anywhere.
inside = {name.split("/")[0] for name in names}
packages = {name for name in inside if not name.endswith((".dist-info", ".data"))}
if packages != {"memforest_daemon", "memforest"}:
    sys.exit(f"top-levels of the wheel are {sorted(packages)}, not memforest_daemon and memforest")
rooms = {name.split("/")[1] for name in names if name.startswith("memforest_daemon/")}
if rooms != {"daemon", "events", "projections"}:
    sys.exit(f"memforest_daemon holds {sorted(rooms)}")
packaged = (".dist-info/licenses/LICENSE", ".data/scripts/memforestd", "memforest/py.typed", "/background.txt")
for suffix in packaged:
    if not any(name.endswith(suffix) for name in names):
        sys.exit(f"the wheel lacks {suffix}")
PYTHON

if command -v uv >/dev/null 2>&1; then
    uv venv --quiet --python "$python" "$scratch/venv"
    install() { uv pip install --quiet --python "$scratch/venv/bin/python" "$@"; }
    uninstall() { uv pip uninstall --quiet --python "$scratch/venv/bin/python" "$@"; }
else
    "$python" -m venv "$scratch/venv"
    pip() { "$scratch/venv/bin/python" -m pip -qq --disable-pip-version-check --no-input "$@"; }
    install() { pip install "$@"; }
    uninstall() { pip uninstall --yes "$@"; }
fi

run_installed() {
    echo "wheel: run $1"
    "$scratch/venv/bin/memforestd" --version
    "$scratch/venv/bin/memforest" --version
    "$scratch/venv/bin/python" -c 'import memforest'
}

echo 'wheel: install, with the locked dependencies'
install --require-hashes -r "$root/requirements.lock"
install 'python-daemon==3.1.2'
install --no-deps "$wheel"
install 'Events==0.5'
run_installed 'beside Events and python-daemon'
"$scratch/venv/bin/python" -c 'import daemon, events; daemon.DaemonContext, events.Events'
uninstall Events python-daemon
run_installed 'after they were uninstalled'
echo 'wheel: OK'
