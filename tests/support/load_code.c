/* load_code.c: machine code goes through the loader once, and nothing of it stays. */
#include "load_code.h"

#include "support.h"

fly_status test_load_code(const uint8_t *object, size_t size, fly_error *error) {
  flyi_code code = {0};
  uint8_t *copy = guard_alloc(size, 1, 0);
  memcpy(copy, object, size);
  fly_status status = flyi_code_load((flyi_section){copy, size}, &code, error);
  guard_free(copy);
  ck_assert_int_eq(status == FLY_OK, code.tile != NULL);
  if (code.unload) code.unload(&code);
  ck_assert(code.tile == NULL);
  return status;
}
