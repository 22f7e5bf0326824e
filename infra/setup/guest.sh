#!/usr/bin/env bash
# Builds what a machine boots from: the guest's kernel, initramfs and tools disk.
set -euo pipefail
cd "$(dirname "$0")/../.."
. infra/setup/common.sh

# These builders are of the standard library alone, and wait for no environment.
read -r python _ < <(python_of_checkout)
"$python" -m guest.build --unpacked "$products/unpacked" --out "$products/guest"
