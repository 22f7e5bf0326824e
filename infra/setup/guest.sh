#!/usr/bin/env bash
# Builds what a machine boots from: the guest's kernel, initramfs and tools disk.
set -euo pipefail
cd "$(dirname "$0")/../.."
. infra/setup/common.sh

.venv/bin/python -m guest.build --unpacked "$products/unpacked" --out "$products/guest"
