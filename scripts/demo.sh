#!/usr/bin/env bash
# Installs what is missing, builds, and runs the main job: sliding-window, stochastic and full causal attention over the same
# real Q, K and V; a table, and a picture of the three block maps. Usage: demo.sh [DIRECTORY for the results]
set -eu
. "$(dirname "$0")/setup.sh"
flymask_setup
flymask_build "$flymask_root/build" -DFLYMASK_TESTS=OFF
exec "$flymask_root/build/flymask" demo -o "${1:-$flymask_root/build/demo}"
