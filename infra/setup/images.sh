#!/usr/bin/env bash
# Builds the base images that are missing, from this machine's own sources of packages.
set -euo pipefail
cd "$(dirname "$0")/../.."
. infra/setup/common.sh

# These builders are of the standard library alone, and wait for no environment.
read -r python _ < <(python_of_checkout)

main() {
  local scratch=$products/images/.apt options=() file
  rm -rf "$scratch"
  mkdir -p "$scratch"
  python3 infra/setup/sources.py debian bookworm "$scratch"
  for file in "$scratch"/*; do
    [ -e "$file" ] && options+=(--sources "$file")
  done
  # How this machine reaches its mirrors (a proxy, say), and nothing else of its configuration.
  apt-config dump | grep -E '^Acquire::(https?::|Retries|Check-Valid-Until|Check-Date)' >"$scratch.conf" || true
  as_root "$python" -m infra.image.build busybox debian-12 --images "$products/images" \
    --busybox "$(busybox)" --apt-conf "$scratch.conf" "${options[@]}"
  as_root chown -R "$(id -u):$(id -g)" "$products/images"
  rm -rf "$scratch" "$scratch.conf"
}

# Where the package put it differs between releases.
busybox() { find "$products/unpacked" -path '*bin/busybox' -type f -print -quit; }

main
