#!/usr/bin/env bash
# libflymask_runtime for AArch64, on another machine: installs what is missing from Debian (a cross compiler, qemu-user, and
# arm64 packages that it unpacks below the build), builds the library, its suites and images ahead of time, and runs the
# suites under qemu. It needs build/flymask, and builds that where it is missing.
#
#   aarch64.sh           a share of each suite: a few minutes on 2 cores
#   aarch64.sh --all     the whole suites: some ten minutes
#   aarch64.sh setup     installs and unpacks only: `ctest --test-dir build -R aarch64` then runs what is otherwise skipped
set -eu
. "$(dirname "$0")/setup.sh"

build=${FLYMASK_BUILD:-$flymask_root/build}
packages=$build/aarch64-packages

# arm64 packages of this distribution, unpacked: nothing is installed, and dpkg's own lists stay as they are.
unpack_packages() {
  local wanted="check libsubunit-dev libxxhash-dev libxxhash0 libjansson-dev" temporary apt deb output
  [ -e "$packages/complete" ] && return 0
  temporary=$(mktemp -d)
  mkdir -p "$temporary/lists/partial" "$temporary/archives/partial" "$packages"
  apt="apt-get -q -o Dir::State::Lists=$temporary/lists -o Dir::Cache=$temporary -o Dir::State::status=/dev/null"
  apt="$apt -o APT::Architecture=arm64 -o APT::Architectures=arm64 -o APT::Sandbox::User="
  # shellcheck disable=SC2086
  if ! output=$(cd "$temporary" && { $apt update && $apt download $wanted; } 2>&1); then
    echo "$output" | tail -n 10 >&2
    echo "Could not get arm64 packages: $wanted" >&2
    rm -rf "$temporary"
    return 1
  fi
  for deb in "$temporary"/*.deb; do dpkg-deb -x "$deb" "$packages"; done
  rm -rf "$temporary"
  touch "$packages/complete"
}

share=8
case "${1:-}" in
'' | setup) ;;
--all) share= ;;
*)
  sed -n '2,8s/^# \?//p' "$0" >&2
  exit 2
  ;;
esac
flymask_setup gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user
unpack_packages
[ "${1:-}" = setup ] && exit 0
[ -x "$build/flymask" ] || flymask_build "$build"
"$flymask_root/tests/runtime/aarch64.sh" build "$build"
${share:+env FLYMASK_TEST_SHARE=$share} ctest --test-dir "$build/aarch64" --output-on-failure --no-tests=error -j "$(nproc)"
