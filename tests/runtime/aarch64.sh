#!/usr/bin/env bash
# aarch64.sh build BUILD: cross-builds the runtime library, its suites and images into BUILD/aarch64, with BUILD/flymask.
# aarch64.sh run BUILD SUITE: runs a suite under qemu. Both end with 77 where what scripts/aarch64.sh installs is missing.
set -eu
source=$(cd "$(dirname "$0")/../.." && pwd)
build=$2
for tool in aarch64-linux-gnu-gcc qemu-aarch64; do
  command -v $tool >/dev/null || { echo "SKIPPED: no $tool (scripts/aarch64.sh setup installs it)"; exit 77; }
done
[ -e "$build/aarch64-packages/complete" ] || { echo "SKIPPED: no arm64 packages (scripts/aarch64.sh setup unpacks them)"; exit 77; }

case $1 in
build)
  launcher=$(sed -n 's/^CMAKE_C_COMPILER_LAUNCHER:[A-Z]*=//p' "$build/CMakeCache.txt")
  cmake -S "$source" -B "$build/aarch64" -G Ninja -DCMAKE_TOOLCHAIN_FILE="$source/cmake/aarch64.cmake" -DFLYMASK_COMPILER=OFF \
    -DFLYMASK_TESTS=ON -DFLYMASK_WERROR=ON -DFLYMASK_AARCH64_PACKAGES="$build/aarch64-packages" \
    -DFLYMASK_COMMAND="$build/flymask" ${launcher:+-DCMAKE_C_COMPILER_LAUNCHER="$launcher"} >/dev/null
  cmake --build "$build/aarch64"
  ;;
run)
  [ -x "$build/aarch64/tests/runtime/test_$3" ] || { echo "test_$3 is not built"; exit 1; }
  exec ctest --test-dir "$build/aarch64" -R "^$3\$" --no-tests=error --output-on-failure
  ;;
esac
