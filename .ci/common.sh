# Functions that the scripts here share; sourced, never run.

# Print one line of progress.
say() { printf '%s\n' "$*"; }

# Print why the script cannot go on, and exit.
fail() { printf '%s: %s\n' "make ${0##*/}" "$*" >&2; exit 1; }

# Install Debian packages as root; for other users, fail with the exact command.
#   install_packages "what is missing" package...
install_packages() {
  local missing=$1
  shift
  command -v apt-get >/dev/null || fail "$missing. Install it with your system's package manager (Debian calls it: $*)."
  [ "$(id -u)" -eq 0 ] || fail "$missing. Run:  sudo apt-get install -y $*"
  say "$missing: installing $*"
  export DEBIAN_FRONTEND=noninteractive
  apt-get install -y -qq --no-install-recommends "$@" >/dev/null 2>&1 && return
  # The list of packages may be missing or old, as in a fresh container.
  apt-get update -qq && apt-get install -y -qq --no-install-recommends "$@" >/dev/null ||
    fail "$missing, and apt-get could not install it. Try:  apt-get update && apt-get install -y $*"
}

# Checksums of what the front end is built from.
front_end_sources() {
  find extensions \( -name node_modules -o -name lib -o -name labextension -o -name .yarn -o -name __pycache__ \) -prune \
    -o -type f ! -name build.log -print0 | LC_ALL=C sort -z | xargs -0 cksum
}
