#!/usr/bin/env bash
# Draws every mask of masks/ with `flymask show`, and writes masks/README.md around the pictures.
# Usage: mask_pictures.sh [BUILD DIRECTORY, default build]; pngquant makes the files small.
set -eu
command -v pngquant >/dev/null || { echo "$0 needs pngquant (apt-get install pngquant)" >&2; exit 1; }
root=$(cd "$(dirname "$0")/.." && pwd)
flymask=$(realpath "${1:-$root/build}/flymask")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"${CC:-cc}" -O1 -o "$work/mask_examples" "$root/scripts/mask_examples.c"
"$work/mask_examples" "$work"

# "# TITLE" begins a section; other lines are a mask and what `flymask show` gets for it.
examples() {
  cat <<'EXAMPLES'
# Everything, and causal
full
causal
prefix_lm prefix=64
key_padding lengths=lengths.npy --batch 2
# Windows
causal_window window=48
sliding_window left=48 right=16
symmetric_window radius=32
head_window window=window.npy --heads 4 --at 0,1
dilated_window window=8 dilation=6
global_window window=16 globals=12
longformer window=16 is_global=is_global.npy
longformer_dilated window=8 dilation=4 is_global=is_global.npy
streaming_llm sinks=8 window=48
strided stride=24
strided_fixed stride=32 summary=4
logarithmic window=12
random_pairs per_mille=60
stochastic left=24 right=24 --rows random:1
stochastic_ring left=24 right=24 causal=0
# Blocks
chunked size=48
block_sparse size=16 bitmap=bitmap.npy
selected_tiles size=16 count=4 tile=tile.npy blocks=blocks.npy
block_selected size_q=16 size_kv=16 bitmap=bitmap_per_head.npy --heads 2 --at 0,1
moba size=16 selected=selected.npy
bigbird size=16 picks=picks.npy
batchify size=64 left=24
block_diffusion length=128 size=16
bitmask bits=bits.npy
# Documents, groups and trees
document doc=doc.npy
packed_causal doc=doc.npy offsets=offsets.npy
document_inner doc=doc.npy offsets=offsets.npy left=16 prefix=8
shared_prefix doc=doc.npy offsets=offsets.npy prefix_of=prefix_of.npy
focus window=16 groups=groups.npy
smat profile=profile.npy type=type.npy visible=visible.npy
tree prefix=16 ancestors=ancestors.npy --lengths 64,64
tree_bits prefix=16 ancestors=ancestor_words.npy --lengths 64,64
flamingo size=32 intervals=intervals.npy --lengths 256,128
# Images and video
natten_1d kernel=49
natten_2d height=16 width=16 kernel_h=7 kernel_w=7
natten_2d_tiled height=16 width=16 kernel_h=7 kernel_w=7 tile_h=4 tile_w=4
natten_2d_morton height=16 width=16 kernel_h=7 kernel_w=7
sliding_tile_2d tiles_h=5 tiles_w=3 kernel_h=3 kernel_w=1 tile=16 text=16
sliding_tile_3d tiles_t=4 tiles_h=2 tiles_w=2 kernel_t=3 kernel_h=1 kernel_w=2 tile=16
svg_spatial prompt=16 frame=40 frames=1 sink=1 rounding=8
svg_temporal prompt=16 frame=40 frames=6 width=1
EXAMPLES
}

draw() { # NAME ARGUMENT...
  local lengths=(--lengths "256,256")
  [[ " $* " == *" --lengths "* ]] && lengths=()
  (cd "$work" && "$flymask" show "$@" "${lengths[@]}" --tile 16,16 --no-legend -o picture.png) >/dev/null
  pngquant --force --nofs --strip 16 --output "$root/masks/pictures/$1.png" "$work/picture.png"
}

for source in "$root"/masks/*.c; do
  name=$(basename "$source" .c)
  examples | grep -q "^$name\( \|$\)" || { echo "no example for masks/$name.c in $0" >&2; exit 1; }
done

mkdir -p "$root/masks/pictures"
"$flymask" list >"$work/list"
page=$work/README.md
cat >"$page" <<'HEAD'
# The masks

Each file here is one mask, a few lines of C. Its first comment says what it is, the convention it follows, and what its
parameters and buffers mean; `flymask list` prints the first sentence of each. A name is enough for the command:

    flymask check sliding_window left=255 right=0
    flymask map document doc=documents.npy --lengths 65536

A mask sees q = row + q_offset and kv = row. Masks are aligned at the top left; q_offset = len_kv - len_q
(`--q-offset end`) makes that bottom right. Where conventions differ by one, the comment says which one the file follows
and how to get the other. Indices behind the end of a buffer of one dimension read its last element. Masks combine by
and, or and not.

In the pictures queries go down and keys to the right: 256 of each where nothing else is said, in tiles of 16 x 16. Full
tiles are blue; in partial tiles visible pairs are dark orange, hidden ones light; empty tiles are grey. The pictures
and this page are made by `scripts/mask_pictures.sh`, the buffers by `scripts/mask_examples.c`.
HEAD
examples | while read -r name arguments; do
  if [ "$name" = "#" ]; then
    printf '\n## %s\n\n| picture | mask |\n| --- | --- |\n' "$arguments" >>"$page"
    continue
  fi
  # shellcheck disable=SC2086
  draw "$name" $arguments
  sentence=$(sed -n "s/^$name  *//p" "$work/list" | sed 's/|/\\|/g')
  printf '| <img src="pictures/%s.png" width="300" alt="%s"> | **[%s](%s.c)**: %s<br><br>`%s` |\n' \
    "$name" "$name" "$name" "$name" "$sentence" "$name${arguments:+ $arguments}" >>"$page"
done
mv "$page" "$root/masks/README.md"
bytes=$(cat "$root"/masks/pictures/*.png | wc -c)
echo "masks/README.md: $(ls "$root"/masks/pictures/*.png | wc -l) pictures, $bytes bytes"
[ "$bytes" -le 524288 ] || { echo "the pictures are larger than 512 KiB" >&2; exit 1; }
