/* native.h: the masks of masks/ compiled as ordinary C: brute force for tests, independent of
 * the compiler under test. */
#ifndef TEST_NATIVE_H
#define TEST_NATIVE_H

#include <flymask/flymask.h>

typedef struct native_mask {
  void *handle;
  bool (*mask)(int b, int h, int q, int kv);
  struct fly_mask_context *context; /* of flymask/mask.h */
} native_mask;

/* Loads masks/NAME.c. Each load has globals of its own. Fails the test where it cannot. */
native_mask native_load(const char *name);
/* Loads any shared object that was compiled from a mask. */
native_mask native_load_path(const char *path);
void native_close(native_mask *mask);
/* Sets an int parameter; a buffer's pointer and dimensions (0-terminated). */
void native_set_int(native_mask *mask, const char *parameter, int value);
void native_set_buffer(native_mask *mask, const char *buffer, const void *data, const int64_t *shape, int rank);
/* What fly_token_... and fly_len_... of the mask answer: a call's geometry, whose arrays stay the caller's. */
void native_set_context(native_mask *mask, const fly_geometry *geometry);

#endif
