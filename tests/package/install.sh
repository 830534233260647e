#!/usr/bin/env bash
# install.sh SOURCE BUILD CC FLAGS: an installation can be used through pkg-config and through CMake, from C and from C++ headers.
set -eu
source=$1 build=$2 cc=$3 flags=$4
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cmake --install "$build" --prefix "$scratch/usr" >"$scratch/log" 2>&1 || { cat "$scratch/log"; exit 1; }
libdir=$(dirname "$(find "$scratch/usr" -name 'libflymask.so' | head -n 1)")
ls "$scratch/usr/share/flymask/masks/causal.c" >/dev/null

export PKG_CONFIG_PATH="$libdir/pkgconfig"
# shellcheck disable=SC2046
$cc $flags -o "$scratch/first" "$source/examples/first.c" $(pkg-config --cflags --libs flymask) -lm
LD_LIBRARY_PATH="$libdir" XDG_CACHE_HOME="$scratch/cache" "$scratch/first"

cat >"$scratch/runtime.c" <<'C'
#include <flymask/flymask.h>
#include <stdio.h>
int main(void) {
  int32_t rows[5];
  if (fly_permutation(5, 1, 0, 0, 0, rows, NULL)) return 1;
  fly_kernel *kernel;
  fly_error error;
  if (fly_kernel_load("not an image", 12, &kernel, &error) != FLY_ERROR_IMAGE) return 1;
  return fly_permutation_check(5, rows, NULL);
}
C
# shellcheck disable=SC2046
$cc $flags -o "$scratch/runtime" "$scratch/runtime.c" $(pkg-config --cflags --libs flymask_runtime)
LD_LIBRARY_PATH="$libdir" "$scratch/runtime"

# CMake's find_package, static and shared.
mkdir "$scratch/project"
cp "$source/examples/first.c" "$scratch/runtime.c" "$scratch/project"
cat >"$scratch/project/CMakeLists.txt" <<'CMAKE'
cmake_minimum_required(VERSION 3.25)
project(user C)
find_package(flymask 0.1 REQUIRED)
add_executable(first first.c)
target_link_libraries(first flymask::flymask_shared m)
add_executable(runtime runtime.c)
target_link_libraries(runtime flymask::runtime_static)
CMAKE
cmake -G Ninja -S "$scratch/project" -B "$scratch/project/build" -DCMAKE_C_COMPILER="$cc" -DCMAKE_C_FLAGS="$flags" -DCMAKE_PREFIX_PATH="$scratch/usr" >"$scratch/log" 2>&1 &&
  cmake --build "$scratch/project/build" >>"$scratch/log" 2>&1 || { cat "$scratch/log"; exit 1; }
XDG_CACHE_HOME="$scratch/cache" "$scratch/project/build/first"
"$scratch/project/build/runtime"

# Each part of the header stands alone, and is C++ too. mask.h and score.h are not parts: they are the masks' language.
for header in "$scratch"/usr/include/flymask/*.h; do
  name=$(basename "$header")
  case $name in mask.h | score.h) continue ;; esac
  echo "#include <flymask/$name>" | $cc -std=c17 -Wall -Wextra -Wpedantic -fsyntax-only -I "$scratch/usr/include" -x c -
  if command -v g++ >/dev/null; then
    echo "#include <flymask/$name>" | g++ -std=c++17 -Wall -Wextra -fsyntax-only -I "$scratch/usr/include" -x c++ -
  fi
done
