/* relocate.c: relocations of the object files that masks are compiled to. Input: a place in loaded code or constants,
 * and what it refers to. Output: the place's instruction or number, completed. For all architectures on any host, so
 * that it can be tested anywhere; which types there are: psABI of x86-64, "Relocation Types", and ELF for the Arm
 * 64-bit Architecture (AAELF64), "Relocation types". */
#include <elf.h>
#include <string.h>

#include "runtime.h"

/* Fields of an AArch64 instruction: `bits` bits of `value` at bit `at`. */
static uint32_t with_field(uint32_t word, int at, int bits, uint64_t value) {
  uint32_t mask = ((UINT32_C(1) << bits) - 1) << at;
  return (word & ~mask) | ((uint32_t)(value << at) & mask);
}

static bool fits(int64_t value, int bits) {
  return value >= -(INT64_C(1) << (bits - 1)) && value < INT64_C(1) << (bits - 1);
}

/* The low 12 bits of an address as the offset of a load or store of 2^shift bytes, which is counted in these. */
static bool low_bits(uint32_t *word, uint64_t value, int shift) {
  if (value & ((UINT64_C(1) << shift) - 1)) return false;
  *word = with_field(*word, 10, 12, (value & 0xfff) >> shift);
  return true;
}

/* B and BL: words, 26 bits. */
static bool branch(uint32_t *word, int64_t distance) {
  if (distance & 3 || !fits(distance, 28)) return false;
  *word = with_field(*word, 0, 26, (uint64_t)distance >> 2);
  return true;
}

/* ADRP: pages of 4 KiB, 21 bits, of which the lowest two lie apart. */
static bool page(uint32_t *word, int64_t pages) {
  if (!fits(pages, 21)) return false;
  *word = with_field(with_field(*word, 29, 2, (uint64_t)pages & 3), 5, 19, (uint64_t)pages >> 2);
  return true;
}

/* An instruction; *known false: not of a type that is one. */
static bool relocate_instruction(uint32_t type, uint32_t *word, uint64_t value, uint64_t place, bool *known) {
  switch (type) {
  case R_AARCH64_CALL26:
  case R_AARCH64_JUMP26:
    return branch(word, (int64_t)(value - place));
  case R_AARCH64_ADR_PREL_PG_HI21:
    return page(word, (int64_t)(value >> 12) - (int64_t)(place >> 12));
  case R_AARCH64_ADD_ABS_LO12_NC:
  case R_AARCH64_LDST8_ABS_LO12_NC:
    return low_bits(word, value, 0);
  case R_AARCH64_LDST16_ABS_LO12_NC:
    return low_bits(word, value, 1);
  case R_AARCH64_LDST32_ABS_LO12_NC:
    return low_bits(word, value, 2);
  case R_AARCH64_LDST64_ABS_LO12_NC:
    return low_bits(word, value, 3);
  case R_AARCH64_LDST128_ABS_LO12_NC:
    return low_bits(word, value, 4);
  default:
    *known = false;
    return false;
  }
}

static bool relocate_aarch64(uint32_t type, uint8_t *at, uint64_t value, uint64_t place, bool *known) {
  uint32_t word;
  if (type == R_AARCH64_PREL32) {
    int64_t distance = (int64_t)(value - place);
    if (!fits(distance, 32)) return false;
    word = (uint32_t)distance;
  } else {
    memcpy(&word, at, sizeof word);
    if (!relocate_instruction(type, &word, value, place, known)) return false;
    if (place & 3) return false;
  }
  memcpy(at, &word, sizeof word);
  return true;
}

static bool relocate_x86_64(uint32_t type, uint8_t *at, uint64_t value, uint64_t place, bool *known) {
  int64_t distance = (int64_t)(value - place);
  *known = type == R_X86_64_PC32 || type == R_X86_64_PLT32;
  if (!*known || !fits(distance, 32)) return false;
  uint32_t word = (uint32_t)distance;
  memcpy(at, &word, sizeof word);
  return true;
}

fly_status flyi_relocate(int machine, uint32_t type, uint8_t *at, uint64_t value, uint64_t place, fly_error *error) {
  bool known = true;
  bool good = machine == EM_AARCH64 ? relocate_aarch64(type, at, value, place, &known)
                                    : relocate_x86_64(type, at, value, place, &known);
  if (good) return FLY_OK;
  return flyi_fail(error, FLY_ERROR_IMAGE, "the mask's code is damaged: relocation of type %u%s", type,
                   known ? " is out of range or not aligned" : ", which no mask's code has");
}
