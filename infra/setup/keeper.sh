#!/usr/bin/env bash
# Compiles the keeper, the small parent of each machine.
set -euo pipefail
cd "$(dirname "$0")/../.."
. infra/setup/common.sh

mkdir -p "$products/bin"
gcc -std=gnu17 -O2 -Wall -Wextra -Werror -static -s -o "$products/bin/keeper.part" infra/qemu/keeper.c
mv "$products/bin/keeper.part" "$products/bin/keeper"
