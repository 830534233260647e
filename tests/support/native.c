/* native.c: each mask is a shared object in the build directory; a private copy is loaded, so that
 * globals are not shared. */
#include "native.h"

#include <check.h>
#include <dlfcn.h>
#include <flymask/mask.h>
#include <stdio.h>
#include <string.h>

native_mask native_load_path(const char *path) {
  native_mask m = {.handle = dlmopen(LM_ID_BASE, path, RTLD_NOW | RTLD_LOCAL)};
  ck_assert_msg(m.handle != NULL, "%s", dlerror());
  *(void **)&m.mask = dlsym(m.handle, "mask");
  m.context = dlsym(m.handle, "fly_mask_context");
  ck_assert(m.mask != NULL);
  ck_assert_ptr_nonnull(m.context);
  return m;
}

native_mask native_load(const char *name) {
  char path[512];
  snprintf(path, sizeof path, "%s/tests/native_%s.so", FLYMASK_BUILD, name);
  return native_load_path(path);
}

void native_close(native_mask *mask) {
  if (mask->handle) dlclose(mask->handle);
  memset(mask, 0, sizeof *mask);
}

void native_set_int(native_mask *mask, const char *parameter, int value) {
  int *at = dlsym(mask->handle, parameter);
  ck_assert_msg(at != NULL, "no parameter %s", parameter);
  *at = value;
}

void native_set_buffer(native_mask *mask, const char *buffer, const void *data, const int64_t *shape, int rank) {
  const void **at = dlsym(mask->handle, buffer);
  ck_assert_msg(at != NULL, "no buffer %s", buffer);
  *at = data;
  for (int k = 0; k < rank; k++) {
    char name[128];
    snprintf(name, sizeof name, "%s_dim%d", buffer, k);
    int64_t *dim = dlsym(mask->handle, name);
    ck_assert_ptr_nonnull(dim);
    *dim = shape[k];
  }
}

void native_set_context(native_mask *mask, const fly_geometry *g) {
  *mask->context = (struct fly_mask_context){
      .len_q = (int)g->len_q,
      .len_kv = (int)g->len_kv,
      .q_offset = (int)g->q_offset,
      .q_rows = g->q_rows.rows,
      .kv_rows = g->kv_rows.rows,
      .q_stride_b = g->q_rows.stride_batch,
      .q_stride_h = g->q_rows.stride_head,
      .kv_stride_b = g->kv_rows.stride_batch,
      .kv_stride_h = g->kv_rows.stride_head,
      .cu_seqlens_q = g->cu_seqlens_q,
      .cu_seqlens_kv = g->cu_seqlens_kv,
  };
}
