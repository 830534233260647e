/* image.c: kernel images as plain bytes. Input and output: flyi_image, and the bytes that a cache or a file keeps.
 *
 *     header      magic, format, library version and build, size, checksum of all that follows, the table of sections
 *     sections    in the order of the table, each at the next multiple of 16, zero bytes between them
 *
 * Numbers are little-endian, strings NUL-terminated in a section of their own. There is one way to write an image,
 * and the reader accepts no other: everything is checked before it is used, and nothing outside `size` bytes is ever
 * read. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "runtime.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "images are read as they lie");

enum { FORMAT = 2, ALIGN = 16, MAX_NAME = 1023, MAX_FILE_NAME = 4095 };
enum { FIXED, STRINGS, PARAMETERS, BUFFERS, PROGRAM, CODE, IR, SCORE, ENTRIES, PTX, SECTIONS = PTX + FLYI_DIRECTIONS };

static const char magic[8] = "FLYMASK\x1a";

typedef struct header {
  char magic[8];
  uint32_t format, sections;
  char version[16];   /* FLY_VERSION, padded with zeros */
  uint64_t size;      /* of the whole image */
  uint64_t build;     /* flyi_build_id */
  flyi_hash checksum; /* of everything behind it */
  struct {
    uint64_t offset, size;
  } table[SECTIONS];
} header;

typedef struct fixed {
  flyi_hash identity;
  uint32_t reads, parameter_count, buffer_count;
  uint32_t name, target, kernel_target; /* offsets of strings; kernel_target 0: none */
  uint32_t kernel_type, head_dim, value_dim, kind;
} fixed;

typedef struct parameter_entry {
  uint32_t name, type, baked, reserved;
  uint64_t value;
} parameter_entry;

typedef struct buffer_entry {
  uint32_t name, type, rank, reserved;
} buffer_entry;

typedef struct cuda_entry {
  uint32_t name;
  int32_t direction, role, needs, outer, inner, threads, shared_bytes, argument_bytes, reserved;
} cuda_entry;

static bool parameter_type(uint32_t type) { return type == FLY_F32 || (type >= FLY_F64 && type <= FLY_BOOL); }

static bool buffer_type(uint32_t type) { return type == FLY_F32 || (type >= FLY_I8 && type <= FLY_BOOL); }

/* ---- writing ----------------------------------------------------------------------------------------------------- */

/* Strings start with an empty one, so that offset 0 is "no string". */
static bool add_string(flyi_bytes *strings, const char *text, uint32_t *offset) {
  *offset = (uint32_t)strings->size;
  return strings->size < UINT32_MAX / 2 && flyi_bytes_add(strings, text, strlen(text) + 1);
}

static bool add_entries(const flyi_image *image, flyi_bytes *strings, flyi_bytes *entries) {
  for (int d = 0; d < FLYI_DIRECTIONS; d++)
    for (int i = 0; i < image->entry_counts[d]; i++) {
      const flyi_cuda_entry *e = &image->entries[d][i];
      cuda_entry entry = {0,        d,          e->role,         e->needs,          e->outer,
                          e->inner, e->threads, e->shared_bytes, e->argument_bytes, 0};
      if (!add_string(strings, e->name, &entry.name) || !flyi_bytes_add(entries, &entry, sizeof entry)) return false;
    }
  return true;
}

static bool add_tables(const flyi_image *image, flyi_bytes *strings, flyi_bytes *parameters, flyi_bytes *buffers) {
  for (int i = 0; i < image->parameter_count; i++) {
    const flyi_parameter *p = &image->parameters[i];
    parameter_entry entry = {.type = p->type, .baked = p->baked, .value = p->value};
    if (!add_string(strings, p->name, &entry.name) || !flyi_bytes_add(parameters, &entry, sizeof entry)) return false;
  }
  for (int i = 0; i < image->buffer_count; i++) {
    const fly_buffer_info *b = &image->buffers[i];
    buffer_entry entry = {.type = b->type, .rank = (uint32_t)b->rank};
    if (!add_string(strings, b->name, &entry.name) || !flyi_bytes_add(buffers, &entry, sizeof entry)) return false;
  }
  return true;
}

static bool add_fixed(const flyi_image *image, flyi_bytes *strings, fixed *f) {
  *f = (fixed){
      .kind = image->kind,
      .identity = image->identity,
      .reads = image->reads,
      .parameter_count = (uint32_t)image->parameter_count,
      .buffer_count = (uint32_t)image->buffer_count,
      .kernel_type = image->kernel.type,
      .head_dim = (uint32_t)image->kernel.head_dim,
      .value_dim = (uint32_t)image->kernel.value_dim,
  };
  return flyi_bytes_add(strings, "", 1) && add_string(strings, image->name, &f->name) &&
         add_string(strings, image->target, &f->target) &&
         (!image->kernel.target || add_string(strings, image->kernel.target, &f->kernel_target));
}

static bool add_sections(const flyi_section sections[SECTIONS], flyi_bytes *out) {
  static const uint8_t zeros[ALIGN];
  header h = {.format = FORMAT, .sections = SECTIONS, .version = FLY_VERSION, .build = flyi_build_id};
  memcpy(h.magic, magic, sizeof magic);
  if (!flyi_bytes_add(out, &h, sizeof h)) return false;
  for (int i = 0; i < SECTIONS; i++) {
    if (!flyi_bytes_add(out, zeros, -out->size % ALIGN)) return false;
    h.table[i].offset = out->size;
    h.table[i].size = sections[i].size;
    if (!flyi_bytes_add(out, sections[i].data, sections[i].size)) return false;
  }
  h.size = out->size;
  memcpy(out->data, &h, sizeof h);
  const size_t start = offsetof(header, table);
  h.checksum = flyi_hash_bytes(out->data + start, out->size - start);
  memcpy(out->data, &h, sizeof h);
  return true;
}

fly_status flyi_image_write(const flyi_image *image, flyi_bytes *out, fly_error *error) {
  flyi_bytes strings = {0}, parameters = {0}, buffers = {0}, entries = {0};
  fixed f;
  *out = (flyi_bytes){0};
  bool good = add_fixed(image, &strings, &f) && add_tables(image, &strings, &parameters, &buffers) &&
              add_entries(image, &strings, &entries);
  if (good) {
    const flyi_section sections[SECTIONS] = {
        [FIXED] = {&f, sizeof f},
        [STRINGS] = {strings.data, strings.size},
        [PARAMETERS] = {parameters.data, parameters.size},
        [BUFFERS] = {buffers.data, buffers.size},
        [PROGRAM] = image->program,
        [CODE] = image->code,
        [IR] = image->ir,
        [SCORE] = image->score,
        [ENTRIES] = {entries.data, entries.size},
        [PTX + FLYI_DIRECTION_FORWARD] = image->ptx[FLYI_DIRECTION_FORWARD],
        [PTX + FLYI_DIRECTION_BACKWARD] = image->ptx[FLYI_DIRECTION_BACKWARD],
        [PTX + FLYI_DIRECTION_SPLIT] = image->ptx[FLYI_DIRECTION_SPLIT],
    };
    good = add_sections(sections, out);
  }
  flyi_bytes_free(&strings), flyi_bytes_free(&parameters), flyi_bytes_free(&buffers);
  flyi_bytes_free(&entries);
  if (good) return FLY_OK;
  flyi_bytes_free(out);
  return flyi_no_memory(error);
}

/* ---- reading ----------------------------------------------------------------------------------------------------- */

static fly_status damaged(fly_error *error, const char *what) {
  return flyi_fail(error, FLY_ERROR_IMAGE, "damaged image: %s", what);
}

static fly_status read_sections(const uint8_t *bytes, size_t size, flyi_section sections[SECTIONS], fly_error *error) {
  static const char version[sizeof(((header *)0)->version)] = FLY_VERSION;
  header h;
  if (size < sizeof h) return damaged(error, "shorter than its header");
  memcpy(&h, bytes, sizeof h);
  if (memcmp(h.magic, magic, sizeof magic) != 0) return flyi_fail(error, FLY_ERROR_IMAGE, "not a Flymask image");
  if (h.format != FORMAT)
    return flyi_fail(error, FLY_ERROR_IMAGE, "an image of format %u, this library reads %d", h.format, FORMAT);
  if (memcmp(h.version, version, sizeof version) != 0)
    return flyi_fail(error, FLY_ERROR_IMAGE, "an image of Flymask %.16s, this is %s", h.version, FLY_VERSION);
  if (h.build != flyi_build_id)
    return flyi_fail(error, FLY_ERROR_IMAGE, "an image of another build of Flymask %s: make it again", FLY_VERSION);
  if (h.size != size) return damaged(error, "its size is not what its header says");
  if (h.sections != SECTIONS) return damaged(error, "header");
  const size_t start = offsetof(header, table);
  if (!flyi_hash_equal(h.checksum, flyi_hash_bytes(bytes + start, size - start))) return damaged(error, "checksum");
  size_t at = sizeof h;
  for (int i = 0; i < SECTIONS; i++) {
    for (; at % ALIGN; at++)
      if (at >= size || bytes[at]) return damaged(error, "padding");
    if (h.table[i].offset != at || h.table[i].size > size - at) return damaged(error, "table of sections");
    sections[i] = (flyi_section){h.table[i].size ? bytes + at : NULL, h.table[i].size};
    at += h.table[i].size;
  }
  return at == size ? FLY_OK : damaged(error, "bytes behind the last section");
}

/* A string of the section, or NULL. The section ends with a NUL, so that every string in it ends. */
static const char *string_at(flyi_section strings, uint32_t offset, size_t longest) {
  if (offset == 0 || offset >= strings.size) return NULL;
  const char *text = (const char *)strings.data + offset;
  return strlen(text) <= longest ? text : NULL;
}

/* A C identifier, or several joined by '.'. */
static bool is_name(const char *text) {
  if (!text || !*text) return false;
  for (bool start = true; *text; text++) {
    unsigned char c = (unsigned char)*text;
    if (start ? !isalpha(c) && c != '_' : !isalnum(c) && c != '_' && c != '.') return false;
    start = c == '.';
    if (start && !text[1]) return false;
  }
  return true;
}

/* A parameter's slot holds its type's value and nothing beside it. */
static bool is_value(uint32_t type, uint64_t value) {
  switch (type) {
  case FLY_F32:
  case FLY_U32:
    return value <= UINT32_MAX;
  case FLY_I8:
    return (int64_t)value == (int8_t)value;
  case FLY_I16:
    return (int64_t)value == (int16_t)value;
  case FLY_I32:
    return (int64_t)value == (int32_t)value;
  case FLY_U8:
    return value <= UINT8_MAX;
  case FLY_U16:
    return value <= UINT16_MAX;
  case FLY_BOOL:
    return value <= 1;
  default:
    return true;
  }
}

static bool is_kernel(const fixed *f) {
  if (f->kernel_type == FLY_TYPE_NONE) return f->head_dim == 0 && f->value_dim == 0 && f->kernel_target == 0;
  return f->kernel_type <= FLY_BF16 && f->head_dim >= 1 && f->head_dim <= FLYI_MAX_DIM && f->value_dim >= 1 &&
         f->value_dim <= FLYI_MAX_DIM;
}

static fly_status read_fixed(const flyi_section sections[SECTIONS], fixed *f, fly_error *error) {
  flyi_section strings = sections[STRINGS];
  if (sections[FIXED].size != sizeof *f) return damaged(error, "fixed section");
  memcpy(f, sections[FIXED].data, sizeof *f);
  if (strings.size == 0 || ((const char *)strings.data)[strings.size - 1] != 0) return damaged(error, "strings");
  if (f->parameter_count > FLYI_MAX_PARAMETERS || f->buffer_count > FLYI_MAX_BUFFERS ||
      sections[PARAMETERS].size != f->parameter_count * sizeof(parameter_entry) ||
      sections[BUFFERS].size != f->buffer_count * sizeof(buffer_entry))
    return damaged(error, "counts");
  if (f->reads > 255 || f->kind > FLYI_SCORE || !is_kernel(f)) return damaged(error, "fixed section");
  if (f->kind == FLYI_SCORE && (f->kernel_type != FLY_TYPE_NONE || sections[PROGRAM].size))
    return damaged(error, "a score modifier with parts of a mask");
  if (f->kind == FLYI_MASK && sections[PROGRAM].size == 0) return damaged(error, "no mask program");
  if (sections[SCORE].size && f->kernel_type == FLY_TYPE_NONE) return damaged(error, "a modifier without a kernel");
  if (sections[CODE].size == 0) return damaged(error, "no code");
  if (sections[ENTRIES].size % sizeof(cuda_entry) ||
      sections[ENTRIES].size > FLYI_DIRECTIONS * FLYI_MAX_ENTRIES * sizeof(cuda_entry))
    return damaged(error, "counts");
  return FLY_OK;
}

/* Arrays and strings are copied to one block, so that they are aligned and outlive the bytes. */
static fly_status allocate(const fixed *f, const flyi_section sections[SECTIONS], flyi_image *out, flyi_section *copied,
                           fly_error *error) {
  flyi_section strings = sections[STRINGS];
  size_t parameters = f->parameter_count * sizeof *out->parameters, buffers = f->buffer_count * sizeof *out->buffers;
  size_t count = sections[ENTRIES].size / sizeof(cuda_entry), entries = count * sizeof(flyi_cuda_entry);
  char *memory = flyi_alloc(parameters + buffers + entries + strings.size, 1);
  if (!memory) return flyi_no_memory(error);
  out->memory = memory;
  out->parameters = (flyi_parameter *)memory;
  out->buffers = (fly_buffer_info *)(memory + parameters);
  for (int d = 0; d < FLYI_DIRECTIONS; d++) out->entries[d] = (flyi_cuda_entry *)(memory + parameters + buffers);
  memcpy(memory + parameters + buffers + entries, strings.data, strings.size);
  *copied = (flyi_section){memory + parameters + buffers + entries, strings.size};
  return FLY_OK;
}

/* Entries come direction by direction, and so that a launch can trust them. */
static fly_status read_entries(const flyi_section sections[SECTIONS], flyi_section strings, flyi_image *out,
                               fly_error *error) {
  int count = (int)(sections[ENTRIES].size / sizeof(cuda_entry)), last = 0;
  flyi_cuda_entry *all = out->entries[0];
  for (int i = 0; i < count; i++) {
    cuda_entry e;
    memcpy(&e, (const uint8_t *)sections[ENTRIES].data + (size_t)i * sizeof e, sizeof e);
    all[i] = (flyi_cuda_entry){string_at(strings, e.name, MAX_NAME), e.role, e.needs, e.outer, e.inner, e.threads,
                               e.shared_bytes, e.argument_bytes};
    if (!is_name(all[i].name) || e.direction < last || e.direction >= FLYI_DIRECTIONS || e.role < 0 ||
        e.role >= FLYI_CUDA_ROLES || e.needs & ~FLYI_CUDA_ALIGNED || e.outer < 1 || e.outer > 1024 || e.inner < 0 ||
        e.inner > 1024 || e.threads < 32 || e.threads > 1024 || e.threads % 32 || e.shared_bytes < 0 ||
        e.shared_bytes > 1 << 20 || e.argument_bytes < (int)flyi_cuda_argument_size(0) || e.argument_bytes % 8 ||
        e.argument_bytes > FLYI_CUDA_MAX_ARGUMENT || e.reserved)
      return damaged(error, "an entry");
    if (e.direction > last) out->entries[e.direction] = all + i;
    last = e.direction;
    if (++out->entry_counts[e.direction] > FLYI_MAX_ENTRIES) return damaged(error, "entries");
  }
  for (int d = 0; d < FLYI_DIRECTIONS; d++) {
    flyi_section ptx = out->ptx[d] = sections[PTX + d];
    bool text = ptx.size && memchr(ptx.data, 0, ptx.size) == (const char *)ptx.data + ptx.size - 1;
    if (out->entry_counts[d] ? !text : ptx.size != 0) return damaged(error, "PTX");
  }
  const char *target = out->kernel.target;
  if (count && (!flyi_is_cuda_target(target) || strlen(target) >= sizeof((flyi_cuda_code *)0)->target))
    return damaged(error, "kernels for a GPU in an image for another target");
  return FLY_OK;
}

static fly_status read_tables(const flyi_section sections[SECTIONS], flyi_section strings, flyi_image *out,
                              fly_error *error) {
  for (int i = 0; i < out->parameter_count; i++) {
    parameter_entry e;
    memcpy(&e, (const uint8_t *)sections[PARAMETERS].data + i * sizeof e, sizeof e);
    flyi_parameter *p = &out->parameters[i];
    *p = (flyi_parameter){string_at(strings, e.name, MAX_NAME), (fly_type)e.type, e.value, e.baked == 1};
    if (!is_name(p->name) || !parameter_type(e.type) || e.baked > 1 || e.reserved || !is_value(e.type, e.value))
      return damaged(error, "a parameter");
  }
  for (int i = 0; i < out->buffer_count; i++) {
    buffer_entry e;
    memcpy(&e, (const uint8_t *)sections[BUFFERS].data + i * sizeof e, sizeof e);
    fly_buffer_info *b = &out->buffers[i];
    *b = (fly_buffer_info){string_at(strings, e.name, MAX_NAME), (fly_type)e.type, (int)e.rank};
    if (!is_name(b->name) || !buffer_type(e.type) || e.rank < 1 || e.rank > 4 || e.reserved)
      return damaged(error, "a buffer");
  }
  return FLY_OK;
}

static const char *name_at(const flyi_image *image, int i) {
  return i < image->parameter_count ? image->parameters[i].name : image->buffers[i - image->parameter_count].name;
}

static bool names_are_distinct(const flyi_image *image) {
  for (int i = 0; i < image->parameter_count + image->buffer_count; i++)
    for (int j = 0; j < i; j++)
      if (strcmp(name_at(image, i), name_at(image, j)) == 0) return false;
  return true;
}

fly_status flyi_image_read(const void *bytes, size_t size, flyi_image *out, fly_error *error) {
  flyi_section sections[SECTIONS] = {{0}}, strings = {0};
  fixed f;
  *out = (flyi_image){0};
  fly_status status = bytes ? read_sections(bytes, size, sections, error) : damaged(error, "NULL");
  if (status || (status = read_fixed(sections, &f, error))) return status;
  if ((status = allocate(&f, sections, out, &strings, error))) return status;
  out->name = string_at(strings, f.name, MAX_FILE_NAME);
  out->target = string_at(strings, f.target, MAX_NAME);
  out->kind = (flyi_kind)f.kind;
  out->identity = f.identity;
  out->reads = f.reads;
  out->parameter_count = (int)f.parameter_count;
  out->buffer_count = (int)f.buffer_count;
  out->program = sections[PROGRAM], out->code = sections[CODE], out->ir = sections[IR];
  out->score = sections[SCORE];
  out->kernel = (fly_kernel_desc){.size = sizeof out->kernel,
                                  .type = (fly_type)f.kernel_type,
                                  .head_dim = (int)f.head_dim,
                                  .value_dim = (int)f.value_dim,
                                  .target = string_at(strings, f.kernel_target, MAX_NAME)};
  if (!out->name || !out->target || (f.kernel_target && !out->kernel.target)) status = damaged(error, "strings");
  if (!status) status = read_tables(sections, strings, out, error);
  if (!status) status = read_entries(sections, strings, out, error);
  if (!status && !names_are_distinct(out)) status = damaged(error, "two parameters or buffers of one name");
  if (!status && out->kind == FLYI_MASK) status = flyi_program_check(out->program, out, error);
  if (status) flyi_image_free(out);
  return status;
}

void flyi_image_free(flyi_image *image) {
  free(image->memory);
  *image = (flyi_image){0};
}

bool flyi_image_same_slots(const flyi_image *a, const flyi_image *b) {
  bool same = a->parameter_count == b->parameter_count && a->buffer_count == b->buffer_count;
  for (int i = 0; same && i < a->parameter_count; i++) same = a->parameters[i].type == b->parameters[i].type;
  for (int i = 0; same && i < a->buffer_count; i++)
    same = a->buffers[i].type == b->buffers[i].type && a->buffers[i].rank == b->buffers[i].rank;
  return same;
}
