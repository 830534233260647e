#!/usr/bin/env bash
# The suite and the benchmarks of the CUDA kernels, as one archive that runs where there is an NVIDIA driver, and
# neither LLVM nor a compiler.
#
#   gpu_suite.sh pack [BUILD [ARCHIVE]]   makes build/flymask-gpu.tar.xz: programs, images, scripts
#   gpu_suite.sh run [BUILD]              packs, unpacks and runs it here
#   gpu_suite.sh rehearse [BUILD]         a few images of it, on the simulated driver, from an empty directory
#
# TARGET in the environment is what kernels are compiled for: sm_80, which every GPU from there on runs. Kernels for
# "cuda" are those of the GPU's own target: to time what users get on an H100, TARGET=sm_90 gpu_suite.sh pack.
#
# In the unpacked archive:  ./run.sh [RESULTS]   with python3, and its torch and flash_attn where they are, for peers.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
target=${TARGET:-sm_80}

usage() {
  sed -n '5,12s/^# \?//p' "$0" >&2
  exit 2
}

types="bf16 f16 f32"
suites="masks features sa decode merge scores gated selection"
bench_masks="causal sliding_window document stochastic selected_tiles"

# Suites and their cases: a few masks and features, or all.
cases() {
  if [ "$1" = few ]; then
    echo "masks causal.fwd.bf16"
    echo "masks causal.bwd.bf16"
    echo "masks document.fwd.f16"
    echo "masks stochastic.bwd.bf16"
    echo "decode decode.fwd.f16"
    echo "merge merge.fwd.bf16"
    echo "scores alibi_slopes.fwd.bf16"
    echo "scores softcap.bwd.f32"
    echo "scores sinks.f32"
    echo "gated gated.fwd.f32"
    echo "gated gated.bwd.bf16"
    echo "selection selection.fwd.bf16"
    echo "selection selection.bwd.f32"
    return
  fi
  local name type direction
  for type in shapes forward backward rest; do echo "features $type"; done
  echo "sa sa"
  echo "merge merge.rest"
  for type in $types; do
    for direction in fwd bwd; do
      for name in "$root"/masks/*.c; do echo "masks $(basename "$name" .c).$direction.$type"; done
      for name in "$root"/scores/*.c; do echo "scores $(basename "$name" .c).$direction.$type"; done
      echo "scores t5_bias_2.$direction.$type"
      for name in merge gated selection; do echo "$name $name.$direction.$type"; done
    done
    for name in modifiers dimensions sinks; do echo "scores $name.$type"; done
    for name in decode decode_dims; do echo "decode $name.fwd.$type"; done
  done
}

# The images of a case: the suite with a compiler writes them. Both directions are in one. Fails where the case does.
pack_image() { # pack_image BUILD FOLDER SUITE CASE
  local output
  if [ "$3" = merge ]; then return; fi # its kernels are the library's
  if output=$(FLYMASK_GPU_IMAGES="$2/images" CK_RUN_CASE="$4" "$1/tests/test_cuda_$3" 2>&1) &&
    grep -q 'Checks: [1-9]' <<<"$output"; then # of a name that is no case there are none
    return
  fi
  echo "no images: $3 $4: $(tail -n 1 <<<"$output")" >&2
  return 1
}
export -f pack_image

# Masks are compiled for the oldest processors: any may sit beside the GPU.
pack_images() { # pack_images BUILD FOLDER few|all
  local mask dim
  echo "making images for $target" >&2
  export FLYMASK_ISA=x86-64 FLYMASK_TEST_TARGET="$target" CK_DEFAULT_TIMEOUT=900 CK_VERBOSITY=minimal
  cases "$3" >"$2/cases"
  if ! sed 's/\.bwd\./.fwd./' "$2/cases" | sort -u |
    xargs -P "$(nproc)" -L 1 bash -c 'pack_image "$@"' pack_image "$1" "$2"; then
    echo "no archive: the cases above failed while their images were made" >&2
    exit 1
  fi
  wc -l <"$2/cases" >"$2/images/cases" # how many run.sh must count
  echo "$target" >"$2/images/target"
  for mask in $bench_masks; do
    for dim in 64 128; do
      "$1/flymask" build "$mask" --head-dim $dim --dtype bf16 --target "$target" \
        -o "$2/images/bench.$mask.bf16.$dim.image"
    done
  done
}

# What the programs link, but for the C library and the driver.
pack_libraries() {
  ldd "$1"/gpu_* | awk '/=> \//{print $3}' | sort -u |
    grep -vE '/(libc|libm|libdl|libpthread|librt|libcuda|ld-linux[^/]*)\.so' | while read -r library; do
    cp -L "$library" "$1/lib/"
  done
}

pack() { # pack BUILD ARCHIVE few|all
  local work program
  for program in flymask tests/gpu_bench $(printf ' tests/gpu_%s' $suites) $(printf ' tests/test_cuda_%s' $suites); do
    if [ ! -x "$1/$program" ]; then
      echo "$1/$program is missing: build first, with tests (scripts/test.sh does)" >&2
      exit 1
    fi
  done
  work=$(mktemp -d)
  trap 'rm -rf "$work"' EXIT
  mkdir -p "$work/flymask-gpu/images" "$work/flymask-gpu/lib"
  pack_images "$1" "$work/flymask-gpu" "$3"
  for program in $suites bench; do cp "$1/tests/gpu_$program" "$work/flymask-gpu/"; done
  strip "$work"/flymask-gpu/gpu_*
  pack_libraries "$work/flymask-gpu"
  cp "$root/bench/gpu_run.sh" "$work/flymask-gpu/run.sh"
  cp "$root/bench/gpu_peers.py" "$work/flymask-gpu/"
  tar -C "$work" -cJf "$2" flymask-gpu
  local bytes needs images
  needs=$(cat "$work"/flymask-gpu/gpu_* "$work"/flymask-gpu/lib/* | grep -aoE 'GLIBC_2\.[0-9]+' | sort -Vu | tail -n 1)
  bytes=$(stat -c %s "$2")
  images=$(find "$work/flymask-gpu/images" -name '*.image' | wc -l)
  echo "$2: $(cat "$work/flymask-gpu/images/cases") cases, $images images for $target, $bytes bytes;" \
    "needs ${needs/_/ } or newer"
  if [ "$bytes" -gt $((40 << 20)) ]; then
    echo "the archive is larger than 40 MiB" >&2
    exit 1
  fi
  rm -rf "$work"
  trap - EXIT
}

build=${2:-$root/build}
case "${1:-}" in
pack)
  pack "$build" "${3:-$build/flymask-gpu.tar.xz}" all
  ;;
run)
  pack "$build" "$build/flymask-gpu.tar.xz" all
  tar -C "$build" -xJf "$build/flymask-gpu.tar.xz"
  exec "$build/flymask-gpu/run.sh" "$build/gpu-results"
  ;;
rehearse)
  empty=$(mktemp -d)
  pack "$build" "$empty/archive.tar.xz" few
  tar -C "$empty" -xJf "$empty/archive.tar.xz"
  cd "$empty/flymask-gpu"
  env -i PATH=/usr/bin:/bin HOME=/nonexistent LD_LIBRARY_PATH="$build/simcuda" SIMCUDA_ARCH="${target#sm_}" \
    ./run.sh "$empty/results" --rehearse
  grep -q '"forward_ms"' "$empty/results/flymask.json"
  grep -q "\"kernels\": \"$target\"" "$empty/results/flymask.json"
  grep -q 'stochastic' "$empty/results/results.json"
  grep -q '</svg>' "$empty/results/results.svg"
  rm -rf "$empty"
  ;;
*)
  usage
  ;;
esac
