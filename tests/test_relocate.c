/* Relocations of both architectures: the instruction that comes out refers to the address asked for, as the manual's
 * encoding says it; what is out of range, not aligned or unknown is refused and changes nothing. */
#include <elf.h>

#include "runtime/runtime.h"
#include "support.h"

static const uint32_t BL = 0x94000000, B = 0x14000000, ADRP = 0x90000003, ADD = 0x91000021;
static const uint32_t LDRB = 0x39400041, LDR_Q = 0x3dc00041;

static uint32_t applied(int machine, uint32_t type, uint32_t word, uint64_t value, uint64_t place) {
  fly_error error = {0};
  uint8_t at[4];
  memcpy(at, &word, 4);
  ck_fly_ok(flyi_relocate(machine, type, at, value, place, &error), error);
  memcpy(&word, at, 4);
  return word;
}

static void refused(int machine, uint32_t type, uint32_t word, uint64_t value, uint64_t place, const char *part) {
  fly_error error = {0};
  uint32_t before = word;
  ck_assert_int_eq(flyi_relocate(machine, type, (uint8_t *)&word, value, place, &error), FLY_ERROR_IMAGE);
  ck_assert_msg(strstr(error.message, part) != NULL, "\"%s\" is not in \"%s\"", part, error.message);
  ck_assert_uint_eq(word, before);
}

/* A number of `bits` bits as a signed one. */
static int64_t extend(uint64_t x, int bits) { return (int64_t)(x << (64 - bits)) >> (64 - bits); }

/* Arm Architecture Reference Manual, C6.2: where B and BL, and ADRP, go. */
static uint64_t branch_target(uint32_t word, uint64_t place) { return place + 4 * extend(word & 0x3ffffff, 26); }

static uint64_t page_target(uint32_t word, uint64_t place) {
  return (place & ~0xfffull) + 4096 * extend((word >> 5 & 0x7ffff) << 2 | (word >> 29 & 3), 21);
}

START_TEST(branches_go_where_they_should) {
  static const int64_t distances[] = {0, 4, -4, 1 << 20, -(1 << 20), (1 << 27) - 4, -(1 << 27)};
  const uint64_t place = 0x7f1234567008;
  for (int i = 0; i < 7; i++) {
    uint32_t call = applied(EM_AARCH64, R_AARCH64_CALL26, BL, place + distances[i], place);
    uint32_t jump = applied(EM_AARCH64, R_AARCH64_JUMP26, B | 0x1234, place + distances[i], place);
    ck_assert_uint_eq(branch_target(call, place), place + distances[i]);
    ck_assert_uint_eq(branch_target(jump, place), place + distances[i]);
    ck_assert_uint_eq(call & 0xfc000000, BL);
    ck_assert_uint_eq(jump & 0xfc000000, B);
  }
  for (uint32_t type = R_AARCH64_JUMP26; type <= R_AARCH64_CALL26; type++) {
    refused(EM_AARCH64, type, BL, place + (1 << 27), place, "out of range");
    refused(EM_AARCH64, type, BL, place - (1 << 27) - 4, place, "out of range");
    refused(EM_AARCH64, type, BL, place + 2, place, "not aligned");
    refused(EM_AARCH64, type, BL, place + 2, place + 2, "not aligned");
  }
}
END_TEST

START_TEST(pages_and_their_low_bits_make_the_address) {
  static const int64_t distances[] = {0, 1, 4095, 4096, -1, -4096, 0x12345670, -0x76543210};
  const uint64_t place = 0x7f1234567ff8;
  for (int i = 0; i < 8; i++) {
    uint64_t value = place + distances[i];
    uint32_t page = applied(EM_AARCH64, R_AARCH64_ADR_PREL_PG_HI21, ADRP, value, place);
    uint32_t low = applied(EM_AARCH64, R_AARCH64_ADD_ABS_LO12_NC, ADD, value, place);
    ck_assert_uint_eq(page_target(page, place) + (low >> 10 & 0xfff), value);
    ck_assert_uint_eq(page & 0x9f00001f, ADRP);
    ck_assert_uint_eq(low & 0xffc003ff, ADD);
  }
  const uint64_t first = place & ~0xfffull, far = UINT64_C(1) << 32;
  applied(EM_AARCH64, R_AARCH64_ADR_PREL_PG_HI21, ADRP, first + far - 1, place);
  applied(EM_AARCH64, R_AARCH64_ADR_PREL_PG_HI21, ADRP, first - far, place);
  refused(EM_AARCH64, R_AARCH64_ADR_PREL_PG_HI21, ADRP, first + far, place, "out of range");
  refused(EM_AARCH64, R_AARCH64_ADR_PREL_PG_HI21, ADRP, first - far - 1, place, "out of range");
}
END_TEST

START_TEST(loads_count_their_offsets_in_what_they_load) { /* _i: the logarithm of its bytes */
  static const uint32_t types[] = {R_AARCH64_LDST8_ABS_LO12_NC, R_AARCH64_LDST16_ABS_LO12_NC,
                                   R_AARCH64_LDST32_ABS_LO12_NC, R_AARCH64_LDST64_ABS_LO12_NC,
                                   R_AARCH64_LDST128_ABS_LO12_NC};
  uint32_t load = _i == 4 ? LDR_Q : LDRB | (uint32_t)_i << 30;
  for (uint64_t low = 0; low < 4096; low += UINT64_C(1) << _i) {
    uint32_t word = applied(EM_AARCH64, types[_i], load, 0x7f1234567000 + low, 0x7f0000000000);
    ck_assert_uint_eq((uint64_t)(word >> 10 & 0xfff) << _i, low);
    ck_assert_uint_eq(word & 0xffc003ff, load);
  }
  if (_i > 0) refused(EM_AARCH64, types[_i], load, 0x7f1234567001, 0x7f0000000000, "not aligned");
}
END_TEST

START_TEST(numbers_are_distances) {
  static const struct {
    int machine;
    uint32_t type;
  } all[] = {{EM_X86_64, R_X86_64_PC32}, {EM_X86_64, R_X86_64_PLT32}, {EM_AARCH64, R_AARCH64_PREL32}};
  static const int64_t distances[] = {0, 5, -4, INT32_MAX, INT32_MIN};
  const uint64_t place = 0x7f1234567001;
  for (int k = 0; k < 3; k++) {
    for (int i = 0; i < 5; i++) {
      uint32_t word = applied(all[k].machine, all[k].type, 0xffffffff, place + distances[i], place);
      ck_assert_int_eq((int32_t)word, distances[i]);
    }
    refused(all[k].machine, all[k].type, 0, place + INT32_MAX + 1, place, "out of range");
    refused(all[k].machine, all[k].type, 0, place + INT32_MIN - INT64_C(1), place, "out of range");
  }
}
END_TEST

START_TEST(unknown_types_are_refused) {
  static const uint32_t arm[] = {R_AARCH64_NONE,         R_AARCH64_ABS64,
                                 R_AARCH64_ADR_GOT_PAGE, R_AARCH64_LD64_GOT_LO12_NC,
                                 R_AARCH64_MOVW_UABS_G0, UINT32_MAX};
  static const uint32_t intel[] = {R_X86_64_NONE, R_X86_64_64, R_X86_64_GOTPCREL, R_X86_64_TPOFF32, UINT32_MAX};
  for (int i = 0; i < 6; i++) refused(EM_AARCH64, arm[i], 0, 4096, 4096, "which no mask's code has");
  for (int i = 0; i < 5; i++) refused(EM_X86_64, intel[i], 0, 4096, 4096, "which no mask's code has");
}
END_TEST

static Suite *suite(void) {
  Suite *s = suite_create("relocate");
  TCase *tests = tcase_create("relocate");
  tcase_add_test(tests, branches_go_where_they_should);
  tcase_add_test(tests, pages_and_their_low_bits_make_the_address);
  tcase_add_loop_test(tests, loads_count_their_offsets_in_what_they_load, 0, 5);
  tcase_add_test(tests, numbers_are_distances);
  tcase_add_test(tests, unknown_types_are_refused);
  suite_add_tcase(s, tests);
  return s;
}

FLY_TEST_MAIN(suite)
