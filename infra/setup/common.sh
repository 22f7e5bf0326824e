# shellcheck shell=bash disable=SC2034
# Shared by the set-up steps; sourced with the checkout as working directory.
# File descriptor 3 is the person at the terminal, everything else of a step goes to its log.

products=.promigence
PATH=$PATH:/usr/sbin:/sbin

{ true >&3; } 2>/dev/null || exec 3>&2

say() { echo "set-up: $*" >&3; }

fail() {
  say "$*"
  exit 1
}

as_root() {
  if [ "$(id -u)" = 0 ]; then
    "$@"
  elif command -v sudo >/dev/null; then
    sudo "$@"
  else
    fail "needs root or sudo for: $*"
  fi
}

# The distribution: debian, ubuntu, or what else /etc/os-release says.
distribution() { (. /etc/os-release && echo "${ID:-unknown}"); }
codename() { (. /etc/os-release && echo "${VERSION_CODENAME:-}"); }

# packages HOW: the names of packages.txt that are to be handled so on this distribution.
packages() {
  awk -v how="$1" -v here="$1@$(distribution)" \
    '!/^#/ && ($1 == how || $1 == here) {print $2}' infra/setup/packages.txt
}

# A Python that the lock files were resolved for, with its version, so that a changed one renews .venv.
python_of_checkout() {
  local candidate
  for candidate in python3 python3.13 python3.12 python3.11 python3.14; do
    if "$candidate" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] < (3, 15))' 2>/dev/null; then
      "$candidate" -c 'import sys; print(sys.executable, sys.version.split()[0])'
      return
    fi
  done
  fail "needs Python 3.11 to 3.14; python3 here is $(python3 --version 2>&1 || echo missing)"
}

# apt and dpkg may be busy (another set-up, unattended upgrades): wait for their locks, within bounds.
apt_get() {
  as_root env DEBIAN_FRONTEND=noninteractive \
    apt-get -q -o DPkg::Lock::Timeout=300 -o Acquire::Retries=3 -o APT::Sandbox::User=root "$@"
}
