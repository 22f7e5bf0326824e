#!/usr/bin/env bash
# Installs what packages.txt wants installed and is missing, and sees to it that QEMU is new enough. With names: of
# packages.txt these alone, for a machine that runs what was built elsewhere.
# Nothing is removed, and no service is left running or enabled that this step brought.
set -euo pipefail
cd "$(dirname "$0")/../.."
. infra/setup/common.sh

qemu_least=8.2
policy=/usr/sbin/policy-rc.d

main() {
  local missing log=$products/log/setup-system.log
  mkdir -p "$products/log"
  mapfile -t missing < <(missing_packages "$@")
  if [ ${#missing[@]} = 0 ] && qemu_is_new_enough; then
    return
  fi
  command -v apt-get >/dev/null || give_up "this is no Debian or Ubuntu; install by hand: ${missing[*]}"
  [ "$(dpkg --print-architecture)" = amd64 ] || give_up "only amd64 is supported, this is $(dpkg --print-architecture)"
  say "system packages: ${missing[*]:-a newer QEMU} (log: $log)"
  install_packages "${missing[@]}" >"$log" 2>&1 || { tail -n 30 "$log" >&2; give_up "apt could not install them"; }
  qemu_is_new_enough || give_up "QEMU $(qemu_version) is older than $qemu_least"
  say "system packages: done, QEMU $(qemu_version)"
}

missing_packages() {
  local wanted
  mapfile -t wanted < <(packages install | if [ $# = 0 ]; then cat; else grep -Fx -e "$(printf '%s\n' "$@")"; fi)
  comm -23 <(printf '%s\n' "${wanted[@]}" | sort -u) \
    <(dpkg-query -W -f '${Package} ${db:Status-Status}\n' "${wanted[@]}" 2>/dev/null | awk '$2 == "installed" {print $1}' | sort)
}

qemu_version() { qemu-system-x86_64 --version 2>/dev/null | awk 'NR == 1 {print $4}'; }

qemu_is_new_enough() { dpkg --compare-versions "$(qemu_version)" ge "$qemu_least"; }

# Only QEMU may come from backports; what it needs, apt takes from where it must.
install_packages() {
  local release=() others=()
  update_lists || return
  if ! candidate_is_new_enough; then
    as_root python3 infra/setup/sources.py backports "$(codename)" && update_lists || return
    release=(-t "$(codename)-backports")
  fi
  mapfile -t others < <(printf '%s\n' "$@" | grep -v '^qemu-')
  hold_services &&
    install "${others[@]}" &&
    install "${release[@]}" qemu-system-x86 qemu-utils &&
    disable_services "${others[@]}"
}

install() { apt_get install -y --no-install-recommends --no-remove "$@"; }

# The lock of the package lists has no time-out of its own.
update_lists() {
  for _ in 1 2 3 4 5 6; do
    apt_get update && return
    sleep 10
  done
  return 1
}

candidate_is_new_enough() {
  local candidate
  candidate=$(apt-cache policy qemu-system-x86 | awk '/Candidate:/ {sub(/^[0-9]+:/, "", $2); print $2}')
  dpkg --compare-versions "$candidate" ge "$qemu_least"
}

# A package's own scripts would start its service; policy-rc.d is Debian's way to say no.
hold_services() {
  [ ! -e "$policy" ] || return 0
  printf '#!/bin/sh\nexit 101\n' | as_root tee "$policy" >/dev/null
  as_root chmod 755 "$policy"
  trap 'as_root rm -f "$policy"' EXIT
}

disable_services() {
  case " $* " in
    *" redis-server "*)
      as_root deb-systemd-helper disable redis-server.service
      as_root update-rc.d redis-server disable
      ;;
  esac
}

give_up() {
  say "$1"
  fail "without it no machine can run here. With Docker: docker compose up; without machines: make up MACHINES=fake."
}

main "$@"
