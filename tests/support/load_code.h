/* load_code.h: the runtime's loader, next to a guard page. */
#ifndef TEST_LOAD_CODE_H
#define TEST_LOAD_CODE_H

#include "runtime/runtime.h"

/* Loads a copy that ends right before an inaccessible page, and unloads it. */
fly_status test_load_code(const uint8_t *object, size_t size, fly_error *error);

#endif
