# setup.sh: sourced by the other scripts. Installs the Debian/Ubuntu packages that are missing, and builds.
#
#   flymask_setup [PACKAGE...]      the packages of a build, and those named
#   flymask_build DIRECTORY [CMAKE-OPTION...]

flymask_root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

flymask_packages() {
  local llvm=${FLYMASK_LLVM:-19}
  echo gcc libc6-dev cmake ninja-build pkg-config "clang-$llvm" "llvm-$llvm-dev" \
    check libjansson-dev libcairo2-dev libpng-dev libxxhash-dev gnuplot-nox fonts-dejavu-core
}

flymask_missing() { # prints the packages among "$@" that are not installed
  local package
  for package in "$@"; do
    dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || echo "$package"
  done
}

flymask_setup() {
  local wanted missing output run=()
  wanted="$(flymask_packages) $*"
  if ! command -v apt-get >/dev/null || ! command -v dpkg-query >/dev/null; then
    echo "This script installs packages on Debian 12 or 13 and Ubuntu 24.04 only. Elsewhere install what these hold, and build" >&2
    echo "with cmake (see README.md): $wanted" >&2
    return 1
  fi
  # shellcheck disable=SC2086
  missing=$(flymask_missing $wanted)
  [ -z "$missing" ] && return 0
  # shellcheck disable=SC2086
  missing=$(echo $missing)
  if [ "$(id -u)" != 0 ]; then
    if ! command -v sudo >/dev/null || ! sudo -n true 2>/dev/null && ! { [ -t 0 ] && sudo true; }; then
      echo "Missing packages, and neither root nor sudo to install them. Please have these installed:" >&2
      echo "  apt-get install $missing" >&2
      return 1
    fi
    run=(sudo)
  fi
  echo "Installing: $missing" >&2
  "${run[@]}" apt-get update -q >/dev/null || true # an old list may still do
  # shellcheck disable=SC2086
  if ! output=$("${run[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends $missing 2>&1); then
    echo "$output" | tail -n 20 >&2
    echo "Could not install: $missing" >&2
    return 1
  fi
}

flymask_build() {
  local directory=$1
  shift
  cmake -S "$flymask_root" -B "$directory" -G Ninja -DFLYMASK_LLVM="${FLYMASK_LLVM:-19}" "$@" >"$directory.log" 2>&1 &&
    cmake --build "$directory" >>"$directory.log" 2>&1 || {
    tail -n 40 "$directory.log" >&2
    echo "The build failed; all of its output: $directory.log" >&2
    return 1
  }
}
