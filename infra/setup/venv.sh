#!/usr/bin/env bash
# Makes .venv: every package by hash, then the two distributions of this checkout in place.
set -euo pipefail
cd "$(dirname "$0")/../.."
. infra/setup/common.sh

read -r python version < <(python_of_checkout)
if [ "$(.venv/bin/python -c 'import sys; print(sys.version.split()[0])' 2>/dev/null)" != "$version" ]; then
  rm -rf .venv
  "$python" -m venv .venv || { rm -rf .venv; fail "$python has no venv: install python3-venv, or run make setup"; }
fi
pip=(.venv/bin/python -m pip --disable-pip-version-check --no-input)
"${pip[@]}" install --require-hashes -r requirements-dev.txt
# pip refuses a folder under --require-hashes, so the build backend is among the hashed packages.
"${pip[@]}" install --no-deps --no-build-isolation --no-index -e . -e sdk
