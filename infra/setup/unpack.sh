#!/usr/bin/env bash
# Fetches the packages that packages.txt wants unpacked and unpacks them under .promigence/unpacked, whole or not at all.
# `release` there names the kernel: its image is boot/vmlinuz-<release>, its modules are in lib/modules/<release>.
set -euo pipefail
cd "$(dirname "$0")/../.."
. infra/setup/common.sh

main() {
  local part=$products/unpacked.part deb
  rm -rf "$part"
  mkdir -p "$part/debs" "$part/root"
  # Lists of packages may be old, and name files that are gone.
  fetch "$part/debs" || { apt_get update && fetch "$part/debs"; }
  for deb in "$part"/debs/*.deb; do
    dpkg-deb --extract "$deb" "$part/root"
  done
  record_release "$part/root"
  rm -rf "$products/unpacked"
  mv "$part/root" "$products/unpacked"
  rm -rf "$part"
}

fetch() {
  local names=()
  mapfile -t names < <(packages unpack | while read -r name; do with_parts "$name"; done)
  (cd "$1" && apt_get download "${names[@]}")
}

# A kernel's name stands for the package that it depends on, and for that one's modules where they are apart.
with_parts() {
  case $1 in
    linux-image-*)
      local image
      image=$(dependency 'linux-image-[0-9]' "$1=$(newest "$1")")
      echo "${image:-no-kernel-behind-$1}"
      dependency 'linux-modules-[0-9]' "$image"
      ;;
    *) echo "$1" ;;
  esac
}

# Backports are not automatic: a version of theirs is asked for by name.
newest() { apt-cache madison "$1" | awk '{print $3}' | sort -V | tail -n 1; }

dependency() { apt-cache depends "$2" | awk -v name="^$1" '/Depends:/ && $2 ~ name {print $2; exit}'; }

record_release() {
  local images=("$1"/boot/vmlinuz-*) release
  release=${images[0]##*/vmlinuz-}
  # Some packages have their modules below usr/lib.
  if [ ! -e "$1/lib/modules" ] && [ -d "$1/usr/lib/modules" ]; then
    mkdir -p "$1/lib"
    ln -s ../usr/lib/modules "$1/lib/modules"
  fi
  [ -d "$1/lib/modules/$release" ] || fail "the modules of kernel $release are not in its package"
  echo "$release" >"$1/release"
  say "the guest's kernel is $release"
}

main
