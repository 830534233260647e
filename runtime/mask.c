/* mask.c: masks and score modifiers made from images, and with values for their parameters and buffers. All are
 * immutable and reference-counted. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runtime.h"

/* ---- masks ------------------------------------------------------------------------------------------------------- */

static void decode_value(const flyi_parameter *parameter, fly_parameter_info *info) {
  info->name = parameter->name;
  info->type = parameter->type;
  if (parameter->type == FLY_F32) {
    float value;
    memcpy(&value, &parameter->value, sizeof value);
    info->value.real = value;
  } else if (parameter->type == FLY_F64) {
    memcpy(&info->value.real, &parameter->value, sizeof info->value.real);
  } else {
    info->value.integer = (int64_t)parameter->value;
  }
}

static void fill_info(fly_mask *mask, bool from_cache) {
  const flyi_image *image = &mask->image;
  uint32_t reads = image->reads, by_entry = FLYI_READS_LEN_Q | FLYI_READS_LEN_KV;
  uint32_t by_head = FLYI_READS_TOKEN_Q | FLYI_READS_TOKEN_KV;
  for (int i = 0; i < image->parameter_count; i++) decode_value(&image->parameters[i], &mask->parameters[i]);
  mask->info = (fly_mask_info){
      .name = image->name,
      .target = image->target,
      .parameter_count = image->parameter_count,
      .buffer_count = image->buffer_count,
      .parameters = mask->parameters,
      .buffers = image->buffers,
      .reads_b = reads & (FLYI_READS_B | by_entry | by_head),
      .reads_h = reads & (FLYI_READS_H | by_head),
      .reads_q = reads & FLYI_READS_Q,
      .reads_kv = reads & FLYI_READS_KV,
      .reads_token_q = reads & FLYI_READS_TOKEN_Q,
      .reads_token_kv = reads & FLYI_READS_TOKEN_KV,
      .reads_len_q = reads & FLYI_READS_LEN_Q,
      .reads_len_kv = reads & FLYI_READS_LEN_KV,
      .from_cache = from_cache,
  };
}

static void free_mask(fly_mask *mask) {
  if (mask->code.unload) mask->code.unload(&mask->code);
  flyi_image_free(&mask->image);
  free(mask->parameters);
  free(mask->bytes);
  free(mask->cache);
  free(mask);
}

fly_status flyi_mask_check_here(const fly_mask *mask, fly_error *error) {
  if (!mask->elsewhere) return FLY_OK;
  return flyi_fail(error, FLY_ERROR_UNSUPPORTED, "%s is compiled for %s, and this machine is %s: its kernels' images "
                   "run there alone", mask->image.name, mask->image.target, flyi_isa_machine(FLYI_ISA_FIRST));
}

/* Whether the image's code can run here, or, where it was compiled, elsewhere. */
static fly_status check_target(const flyi_image *image, flyi_origin origin, flyi_isa *isa, fly_error *error) {
  fly_error why;
  fly_status status = flyi_isa_parse(NULL, isa, error);
  if (status) return status; /* $FLYMASK_ISA is wrong: not the image's fault */
  if (flyi_isa_parse_any(image->target, isa, &why))
    return flyi_fail(error, FLY_ERROR_IMAGE, "an image that does not run here: %s", why.message);
  if (origin == FLYI_LOADED && !flyi_isa_is_here(*isa))
    return flyi_fail(error, FLY_ERROR_IMAGE, "an image that does not run here: it is for %s, and this machine is %s",
                     flyi_isa_machine(*isa), flyi_isa_machine(FLYI_ISA_FIRST));
  return FLY_OK;
}

/* The code's entries, loaded where they are not yet there. */
static fly_status check_code(fly_mask *mask, fly_error *error) {
  flyi_code *code = &mask->code;
  fly_status status = FLY_OK;
  if (!code->tile && !code->score) status = flyi_code_load(mask->image.code, code, error);
  if (status || (mask->image.kind == FLYI_MASK ? code->tile != NULL : code->score && code->slope)) return status;
  return flyi_fail(error, FLY_ERROR_IMAGE, "damaged image: its code is of another kind than it says");
}

fly_status flyi_mask_from_image(uint8_t *bytes, size_t size, flyi_code code, flyi_origin origin, fly_mask **out,
                                fly_error *error) {
  fly_status status;
  flyi_isa isa;
  *out = NULL;
  fly_mask *mask = flyi_alloc(1, sizeof *mask);
  if (!mask) {
    if (code.unload) code.unload(&code);
    free(bytes);
    return flyi_no_memory(error);
  }
  mask->references = 1;
  mask->bytes = bytes, mask->size = size, mask->code = code; /* owned by the mask from here on */
  if ((status = flyi_image_read(bytes, size, &mask->image, error))) goto done;
  if ((status = check_target(&mask->image, origin, &isa, error))) goto done;
  mask->elsewhere = !flyi_isa_is_here(isa);
  if (!mask->elsewhere && (status = check_code(mask, error))) goto done;
  mask->parameters = flyi_alloc(mask->image.parameter_count, sizeof *mask->parameters);
  if (!mask->parameters) {
    status = flyi_no_memory(error);
    goto done;
  }
  fill_info(mask, origin == FLYI_CACHED);
  *out = mask;
done:
  if (status) free_mask(mask);
  return status;
}

fly_mask *fly_mask_retain(fly_mask *mask) {
  if (mask) atomic_fetch_add_explicit(&mask->references, 1, memory_order_relaxed);
  return mask;
}

void fly_mask_release(fly_mask **slot) {
  fly_mask *mask = slot ? *slot : NULL;
  if (!mask) return;
  *slot = NULL;
  if (atomic_fetch_sub_explicit(&mask->references, 1, memory_order_acq_rel) == 1) free_mask(mask);
}

const fly_mask_info *fly_mask_get_info(const fly_mask *mask) { return mask ? &mask->info : NULL; }

fly_score *fly_score_retain(fly_score *score) { return (fly_score *)fly_mask_retain(flyi_of_score(score)); }

void fly_score_release(fly_score **slot) {
  fly_mask *mask = slot ? flyi_of_score(*slot) : NULL;
  if (slot) *slot = NULL;
  fly_mask_release(&mask);
}

const fly_mask_info *fly_score_get_info(const fly_score *score) { return fly_mask_get_info(flyi_of_score(score)); }

/* ---- values of parameters ---------------------------------------------------------------------------------------- */

typedef struct range {
  int64_t low;
  uint64_t high;
} range;

static range range_of(fly_type type) {
  switch (type) {
  case FLY_I8:
    return (range){INT8_MIN, INT8_MAX};
  case FLY_I16:
    return (range){INT16_MIN, INT16_MAX};
  case FLY_I32:
    return (range){INT32_MIN, INT32_MAX};
  case FLY_I64:
    return (range){INT64_MIN, INT64_MAX};
  case FLY_U8:
    return (range){0, UINT8_MAX};
  case FLY_U16:
    return (range){0, UINT16_MAX};
  case FLY_U32:
    return (range){0, UINT32_MAX};
  default:
    return (range){0, type == FLY_BOOL};
  }
}

static fly_status real_slot(const char *name, fly_type type, double value, uint64_t *slot, fly_error *error) {
  if (type == FLY_F64) {
    memcpy(slot, &value, sizeof value);
    return FLY_OK;
  }
  float narrow = (float)value;
  if (isinf(narrow) && !isinf(value))
    return flyi_fail(error, FLY_ERROR_ARGUMENT, "parameter %s: %g does not fit f32", name, value);
  *slot = 0;
  memcpy(slot, &narrow, sizeof narrow);
  return FLY_OK;
}

fly_status flyi_parameter_slot(const flyi_parameter *parameter, const fly_arg *arg, uint64_t *slot, fly_error *error) {
  const char *name = parameter->name;
  fly_type type = parameter->type;
  if (arg->kind == FLY_ARG_BUFFER)
    return flyi_fail(error, FLY_ERROR_ARGUMENT, "%s is a parameter of type %s, not a buffer", name,
                     fly_type_name(type));
  if (type == FLY_F32 || type == FLY_F64) {
    double value = arg->kind == FLY_ARG_REAL ? arg->real : (double)arg->integer;
    /* An integer is taken where it is exactly a double: 2^63 is excluded because casting it back would overflow. */
    if (arg->kind == FLY_ARG_INTEGER && (value == 0x1p63 || (int64_t)value != arg->integer))
      return flyi_fail(error, FLY_ERROR_ARGUMENT, "parameter %s: %" PRId64 " is not exactly a double", name,
                       arg->integer);
    return real_slot(name, type, value, slot, error);
  }
  if (arg->kind == FLY_ARG_REAL)
    return flyi_fail(error, FLY_ERROR_ARGUMENT, "parameter %s has type %s: give an integer, not %g", name,
                     fly_type_name(type), arg->real);
  range r = range_of(type);
  /* fly_arg holds an int64: values of u64 from 2^63 on are given as their two's complement. */
  if (type != FLY_U64 && (arg->integer < r.low || (arg->integer > 0 && (uint64_t)arg->integer > r.high)))
    return flyi_fail(error, FLY_ERROR_ARGUMENT, "parameter %s: %" PRId64 " is outside %" PRId64 " .. %" PRIu64 " (%s)",
                     name, arg->integer, r.low, r.high, fly_type_name(type));
  *slot = (uint64_t)arg->integer;
  return FLY_OK;
}

/* ---- bound masks ------------------------------------------------------------------------------------------------- */

static void free_bound(fly_bound *bound) {
  if (bound->buffers)
    for (int i = 0; i < bound->mask->image.buffer_count; i++) fly_buffer_release(&bound->buffers[i]);
  free(bound->buffers);
  free(bound->slots);
  fly_mask_release(&bound->mask);
  free(bound);
}

static void add_name(char *list, size_t size, const char *name) {
  size_t used = strlen(list), more = strlen(name) + 2;
  if (used + more + 5 < size) {
    if (used) strcat(list, ", ");
    strcat(list, name);
  } else if (used < 3 || strcmp(list + used - 3, "...") != 0) {
    strcat(list, ", ...");
  }
}

static fly_status unknown_name(const flyi_image *image, const char *name, fly_error *error) {
  char known[512] = "";
  for (int i = 0; i < image->parameter_count; i++) add_name(known, sizeof known, image->parameters[i].name);
  for (int i = 0; i < image->buffer_count; i++) add_name(known, sizeof known, image->buffers[i].name);
  return flyi_fail(error, FLY_ERROR_ARGUMENT, "%s has no parameter or buffer %.100s; it has %s", image->name, name,
                   *known ? known : "none");
}

static fly_status bind_parameter(const flyi_parameter *parameter, const fly_arg *arg, uint64_t *slot,
                                 fly_error *error) {
  uint64_t value;
  fly_status status = flyi_parameter_slot(parameter, arg, &value, error);
  if (status) return status;
  if (parameter->baked && value != parameter->value)
    return flyi_fail(error, FLY_ERROR_ARGUMENT,
                     "parameter %s was baked into the code with another value; compile again", parameter->name);
  *slot = value;
  return FLY_OK;
}

static fly_status bind_buffer(const fly_buffer_info *info, const fly_arg *arg, fly_buffer **slot, fly_error *error) {
  if (arg->kind != FLY_ARG_BUFFER)
    return flyi_fail(error, FLY_ERROR_ARGUMENT, "%s is a buffer (%s, rank %d), not a parameter", info->name,
                     fly_type_name(info->type), info->rank);
  if (!arg->buffer) return flyi_fail(error, FLY_ERROR_ARGUMENT, "buffer %s is NULL", info->name);
  if (arg->buffer->type != info->type || arg->buffer->rank != info->rank)
    return flyi_fail(error, FLY_ERROR_ARGUMENT, "buffer %s is %s of rank %d, declared %s of rank %d", info->name,
                     fly_type_name(arg->buffer->type), arg->buffer->rank, fly_type_name(info->type), info->rank);
  *slot = fly_buffer_retain(arg->buffer);
  return FLY_OK;
}

/* `given` has one flag for each parameter, then each buffer. */
static fly_status bind_arg(fly_bound *bound, const fly_arg *arg, bool *given, fly_error *error) {
  const flyi_image *image = &bound->mask->image;
  if (!arg->name) return flyi_fail(error, FLY_ERROR_ARGUMENT, "an argument has no name");
  int all = image->parameter_count + image->buffer_count, i = 0;
  for (; i < all; i++) {
    const char *name = i < image->parameter_count ? image->parameters[i].name
                                                  : image->buffers[i - image->parameter_count].name;
    if (strcmp(name, arg->name) == 0) break;
  }
  if (i == all) return unknown_name(image, arg->name, error);
  if (given[i]) return flyi_fail(error, FLY_ERROR_ARGUMENT, "%s is given twice", arg->name);
  given[i] = true;
  if (i < image->parameter_count) return bind_parameter(&image->parameters[i], arg, &bound->slots[i], error);
  i -= image->parameter_count;
  return bind_buffer(&image->buffers[i], arg, &bound->buffers[i], error);
}

/* The buffers' slots, and the hash of what the bound mask means: the slots hold pointers, so contents are hashed
 * instead. */
static fly_status finish(fly_bound *bound, fly_error *error) {
  const flyi_image *image = &bound->mask->image;
  size_t count = 1 + image->buffer_count, bytes = count * sizeof(flyi_hash);
  flyi_hash *parts = flyi_alloc(count + 1, sizeof *parts);
  if (!parts) return flyi_no_memory(error);
  parts[0] = flyi_hash_bytes(bound->slots, image->parameter_count * sizeof *bound->slots);
  uint64_t *slot = bound->slots + image->parameter_count;
  for (int i = 0; i < image->buffer_count; i++, slot += FLYI_BUFFER_SLOTS) {
    const fly_buffer *buffer = bound->buffers[i];
    slot[0] = (uintptr_t)buffer->data;
    slot[1] = (uint64_t)buffer->count;
    for (int k = 0; k < 4; k++) slot[2 + k] = (uint64_t)buffer->shape[k];
    parts[1 + i] = buffer->hash;
  }
  parts[count] = image->identity;
  bound->hash = flyi_hash_bytes(parts, bytes + sizeof *parts);
  free(parts);
  return FLY_OK;
}

static fly_status bind(fly_mask *mask, const fly_arg *args, int count, fly_bound **out, fly_error *error) {
  fly_status status = flyi_mask_check_here(mask, error);
  if (status) return status;
  if (count < 0 || (count && !args)) return flyi_fail(error, FLY_ERROR_ARGUMENT, "args is NULL or count negative");
  const flyi_image *image = &mask->image;
  int parameters = image->parameter_count, buffers = image->buffer_count;
  fly_bound *bound = flyi_alloc(1, sizeof *bound);
  bool *given = flyi_alloc(parameters + buffers, sizeof *given);
  if (!bound || !given) {
    free(bound), free(given);
    return flyi_no_memory(error);
  }
  bound->references = 1;
  bound->mask = fly_mask_retain(mask);
  bound->slot_count = parameters + buffers * FLYI_BUFFER_SLOTS;
  bound->slots = flyi_alloc(bound->slot_count, sizeof *bound->slots);
  bound->buffers = flyi_alloc(buffers, sizeof(fly_buffer *));
  if (!bound->slots || !bound->buffers) {
    status = flyi_no_memory(error);
    goto done;
  }
  for (int i = 0; i < parameters; i++) bound->slots[i] = image->parameters[i].value;
  for (int i = 0; i < count; i++)
    if ((status = bind_arg(bound, &args[i], given, error))) goto done;
  for (int i = 0; i < buffers; i++)
    if (!bound->buffers[i]) {
      status = flyi_fail(error, FLY_ERROR_ARGUMENT, "buffer %s (%s, rank %d) of %s is not given",
                         image->buffers[i].name, fly_type_name(image->buffers[i].type), image->buffers[i].rank,
                         image->name);
      goto done;
    }
  if ((status = finish(bound, error))) goto done;
  *out = bound;
done:
  free(given);
  if (status) free_bound(bound);
  return status;
}

fly_status fly_mask_bind(fly_mask *mask, const fly_arg *args, int count, fly_bound **out, fly_error *error) {
  if (!out) return flyi_fail(error, FLY_ERROR_ARGUMENT, "out is NULL");
  *out = NULL;
  return mask ? bind(mask, args, count, out, error) : flyi_fail(error, FLY_ERROR_ARGUMENT, "mask is NULL");
}

fly_status fly_score_bind(fly_score *score, const fly_arg *args, int count, fly_bound **out, fly_error *error) {
  if (!out) return flyi_fail(error, FLY_ERROR_ARGUMENT, "out is NULL");
  *out = NULL;
  return score ? bind(flyi_of_score(score), args, count, out, error)
               : flyi_fail(error, FLY_ERROR_ARGUMENT, "score is NULL");
}

fly_bound *fly_bound_retain(fly_bound *bound) {
  if (bound) atomic_fetch_add_explicit(&bound->references, 1, memory_order_relaxed);
  return bound;
}

void fly_bound_release(fly_bound **slot) {
  fly_bound *bound = slot ? *slot : NULL;
  if (!bound) return;
  *slot = NULL;
  if (atomic_fetch_sub_explicit(&bound->references, 1, memory_order_acq_rel) == 1) free_bound(bound);
}
