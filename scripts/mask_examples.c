/* mask_examples.c: writes the captured buffers that the pictures of masks/README.md are drawn with, as .npy files
 * for 256 positions. Usage: mask_examples DIRECTORY */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N = 256, BLOCK = 16, BLOCKS = N / BLOCK, NODES = 48, DOCUMENTS = 5, IMAGES = 4 };

static const char *directory;

/* A row-major array in numpy's format 1.0; `type` is numpy's ("<i4"). Returns whether that worked. */
static bool write_npy(const char *name, const char *type, int rank, const int *shape, const void *data) {
  char path[4096], header[119], dims[64] = "";
  size_t bytes = (size_t)(type[2] - '0');
  for (int k = 0; k < rank; k++) {
    snprintf(dims + strlen(dims), sizeof dims - strlen(dims), "%d,%s", shape[k], k + 1 < rank ? " " : "");
    bytes *= (size_t)shape[k];
  }
  /* 10 bytes of magic and length, then the header, padded with spaces to a line of 118. */
  snprintf(header, sizeof header, "{'descr': '%s', 'fortran_order': False, 'shape': (%s), }", type, dims);
  size_t used = strlen(header);
  memset(header + used, ' ', sizeof header - used);
  header[117] = '\n';
  snprintf(path, sizeof path, "%s/%s.npy", directory, name);
  FILE *file = fopen(path, "wb");
  if (!file) {
    perror(path);
    return false;
  }
  bool ok = fwrite("\x93NUMPY\1\0\x76\0", 1, 10, file) == 10 && fwrite(header, 1, 118, file) == 118 &&
            fwrite(data, 1, bytes, file) == bytes;
  ok &= fclose(file) == 0;
  if (!ok) perror(path);
  return ok;
}

#define SHAPE(...)                                                                                                     \
  (int)(sizeof(int[]){__VA_ARGS__} / sizeof(int)), (int[]) { __VA_ARGS__ }

/* A number below `limit`, the same in every run (xorshift32). */
static uint32_t below(uint32_t limit) {
  static uint32_t state = 2463534242;
  state ^= state << 13, state ^= state >> 17, state ^= state << 5;
  return (uint32_t)((uint64_t)state * limit >> 32);
}

static bool write_documents(void) {
  static const int32_t offsets[DOCUMENTS + 1] = {0, 52, 110, 148, 190, N}, prefix_of[DOCUMENTS] = {0, 0, 0, 3, 3};
  int32_t doc[N];
  for (int i = 0, d = 0; i < N; i++) doc[i] = d += i == offsets[d + 1];
  return write_npy("doc", "<i4", SHAPE(N), doc) && write_npy("offsets", "<i4", SHAPE(DOCUMENTS + 1), offsets) &&
         write_npy("prefix_of", "<i4", SHAPE(DOCUMENTS), prefix_of);
}

static bool write_per_head(void) {
  static const int32_t window[] = {16, 48, 96, 200}, lengths[] = {160, 224};
  return write_npy("window", "<i4", SHAPE(4), window) && write_npy("lengths", "<i4", SHAPE(2), lengths);
}

static bool write_tokens(void) {
  uint8_t is_global[N] = {0};
  uint32_t groups[N];
  int32_t profile[N], type[N];
  for (int i = 0; i < N; i++) {
    is_global[i] = i == 0 || i == 90 || i == 91 || i == 200;
    groups[i] = 1u << (i / 24 * 5 % 4);
    profile[i] = i / 40 % 3, type[i] = i / 12 % 4;
  }
  static const uint8_t visible[3][4] = {{1, 0, 1, 0}, {1, 1, 0, 0}, {0, 1, 1, 1}};
  return write_npy("is_global", "|u1", SHAPE(N), is_global) && write_npy("groups", "<u4", SHAPE(N), groups) &&
         write_npy("profile", "<i4", SHAPE(N), profile) && write_npy("type", "<i4", SHAPE(N), type) &&
         write_npy("visible", "|u1", SHAPE(3, 4), visible);
}

static bool write_blocks(void) {
  static uint8_t bitmap[BLOCKS][BLOCKS], per_head[1][2][BLOCKS][BLOCKS], selected[1][1][N][BLOCKS], bits[N][N / 8];
  int32_t picks[1][BLOCKS][3];
  for (int i = 0; i < BLOCKS; i++) {
    for (int j = 0; j < BLOCKS; j++) {
      bitmap[i][j] = i == j || below(4) == 0;
      per_head[0][0][i][j] = j <= i && below(3) == 0;
      per_head[0][1][i][j] = i / 3 == j / 3 || below(6) == 0;
    }
    for (int k = 0; k < 3; k++) picks[0][i][k] = (int32_t)below(BLOCKS);
  }
  for (int q = 0; q < N; q++) {
    selected[0][0][q][q / BLOCK] = 1; /* the own block, and two earlier ones: neighbouring queries choose alike */
    for (int k = 0; k < 2 && q >= BLOCK; k++) {
      uint32_t earlier = (uint32_t)(q / BLOCK);
      selected[0][0][q][(uint32_t)(q / 6 * (3 + 4 * k) + k) % earlier] = 1;
    }
    for (int kv = 0; kv < N; kv++) { /* a picture in the bits: rings */
      int x = kv - N / 2, y = q - N / 2;
      if ((x * x + y * y) / 1500 % 2 == 0) bits[q][kv / 8] |= (uint8_t)(1 << kv % 8);
    }
  }
  return write_npy("bitmap", "|u1", SHAPE(BLOCKS, BLOCKS), bitmap) &&
         write_npy("bitmap_per_head", "|u1", SHAPE(1, 2, BLOCKS, BLOCKS), per_head) &&
         write_npy("picks", "<i4", SHAPE(1, BLOCKS, 3), picks) &&
         write_npy("selected", "|u1", SHAPE(1, 1, N, BLOCKS), selected) &&
         write_npy("bits", "|u1", SHAPE(N, N / 8), bits);
}

/* Each query selected two of the four blocks of a tile that is not behind its own. */
static bool write_selection(void) {
  static int32_t tile[N];
  static uint64_t blocks[N];
  for (int q = 0; q < N; q++) tile[q] = q / 64 * ((q / 16) % 3 != 0), blocks[q] = q / 16 % 2 ? 0x5 : 0xa;
  return write_npy("tile", "<i4", SHAPE(1, 1, N), tile) && write_npy("blocks", "<u8", SHAPE(1, 1, N), blocks);
}

static bool write_images(void) {
  static const int32_t intervals[IMAGES][2] = {{0, 90}, {40, 90}, {90, 256}, {150, 220}};
  return write_npy("intervals", "<i4", SHAPE(IMAGES, 2), intervals);
}

static bool write_tree(void) {
  static uint8_t ancestors[NODES][NODES];
  uint64_t words[NODES];
  for (int i = 0; i < NODES; i++) {
    int parent = i < 3 ? -1 : (i - 3) / 2; /* three roots, two children each */
    for (int j = 0; j < NODES && parent >= 0; j++) ancestors[i][j] = ancestors[parent][j];
    ancestors[i][i] = 1;
    words[i] = 0;
    for (int j = 0; j < NODES; j++) words[i] |= (uint64_t)ancestors[i][j] << j;
  }
  return write_npy("ancestors", "|u1", SHAPE(NODES, NODES), ancestors) &&
         write_npy("ancestor_words", "<u8", SHAPE(NODES), words);
}

int main(int argc, char **argv) {
  if (argc != 2) {
    fputs("usage: mask_examples DIRECTORY\n", stderr);
    return 2;
  }
  directory = argv[1];
  bool ok = write_documents() && write_per_head() && write_tokens() && write_blocks() && write_selection() &&
            write_images() && write_tree();
  return ok ? EXIT_SUCCESS : EXIT_FAILURE;
}
