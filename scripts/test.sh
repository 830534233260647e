#!/usr/bin/env bash
# Installs what is missing, builds, and runs the tests.
#
#   test.sh          the quick tests (under 10 minutes on 2 cores)
#   test.sh --ci     these and the longer ones of continuous integration
#   test.sh --all    everything, the nightly ones too, and the same again with LLVM 22 where that is packaged
set -eu
. "$(dirname "$0")/setup.sh"

labels=quick
case "${1:-}" in
'') ;;
--ci) labels='quick|ci' ;;
--all) labels='quick|ci|nightly' ;;
*)
  sed -n '2,6s/^# \?//p' "$0" >&2
  exit 2
  ;;
esac

run_tests() { # run_tests DIRECTORY
  flymask_build "$1" -DFLYMASK_TESTS=ON ${CI:+-DFLYMASK_WERROR=ON}
  ctest --test-dir "$1" -L "^($labels)\$" --output-on-failure --no-tests=error -j "$(nproc)"
}

if [ "$labels" = quick ]; then
  flymask_setup
else
  flymask_setup xz-utils # the suite for GPUs is packed
  "$flymask_root/scripts/aarch64.sh" setup || echo "The suites for AArch64 will be skipped" >&2
fi
run_tests "$flymask_root/build"
if [ "${1:-}" = --all ]; then
  if apt-cache show llvm-22-dev >/dev/null 2>&1; then
    export FLYMASK_LLVM=22
    flymask_setup
    run_tests "$flymask_root/build-llvm22"
  else
    echo "LLVM 22 is not packaged here: skipped"
  fi
fi
