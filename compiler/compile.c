/* compile.c: a mask's whole way, in order. Input: a C source. Output: a fly_mask, and an image in the cache.
 *
 *     source ── cached? ── frontend ── verify ──┬── ir (kept in the image, for fly_mask_combine)
 *                                               ├── analyze ── mask program
 *                                               └── specialize ── emit ── object ── image ── cache, jit ── mask */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <llvm-c/BitWriter.h>
#include <llvm-c/DebugInfo.h>

#include "compiler.h"
#include "toolchain.h"

enum { MAX_SOURCE = 1 << 20 }; /* bytes that are read of a file; the front end refuses more */

static void ignore(LLVMDiagnosticInfoRef info, void *context) { (void)info, (void)context; }

LLVMContextRef flyi_context_create(void) {
  LLVMContextRef context = LLVMContextCreate();
  LLVMContextSetDiagnosticHandler(context, ignore, NULL);
  return context;
}

/* ---- what is asked for ------------------------------------------------------------------------------------------- */

/* Fields with their lengths, so that no two lists of fields give the same bytes. */
static bool add_field(flyi_bytes *bytes, const void *data, size_t size) {
  return flyi_bytes_add(bytes, &size, sizeof size) && flyi_bytes_add(bytes, data, size);
}

static bool add_text(flyi_bytes *bytes, const char *text) { return add_field(bytes, text, strlen(text)); }

static bool add_baked(flyi_bytes *bytes, const fly_compile_options *options) {
  for (int i = 0; i < options->bake_count; i++) {
    const fly_arg *arg = &options->bake[i];
    int32_t kind = arg->kind;
    if (!add_text(bytes, arg->name) || !add_field(bytes, &kind, sizeof kind) ||
        !add_field(bytes, &arg->integer, sizeof arg->integer))
      return false;
  }
  return true;
}

static fly_status make_key(flyi_request *r, fly_error *error) {
  unsigned llvm[3];
  flyi_bytes bytes = {0}, clang = {0};
  LLVMGetVersion(&llvm[0], &llvm[1], &llvm[2]);
  bool good = add_text(&bytes, FLY_VERSION) && add_field(&bytes, &flyi_build_id, sizeof flyi_build_id) &&
              add_field(&bytes, llvm, sizeof llvm) && flyi_toolchain_fingerprint(&r->options, &clang) &&
              add_field(&bytes, clang.data, clang.size) && add_text(&bytes, flyi_isa_name(r->isa)) &&
              add_field(&bytes, flyi_tile_bitcode, (size_t)(flyi_tile_bitcode_end - flyi_tile_bitcode)) &&
              add_text(&bytes, r->name) && add_field(&bytes, &r->base, sizeof r->base) &&
              add_baked(&bytes, &r->options);
  if (good) r->key = flyi_hash_bytes(bytes.data, bytes.size);
  flyi_bytes_free(&bytes), flyi_bytes_free(&clang);
  return good ? FLY_OK : flyi_no_memory(error);
}

fly_status flyi_request_check(const fly_compile_options *options, flyi_request *r, fly_error *error) {
  static const fly_compile_options none = {FLY_INIT(fly_compile_options)};
  if (!flyi_copy_struct(&r->options, sizeof r->options, options ? options : &none))
    return flyi_fail(error, FLY_ERROR_ARGUMENT, "options.size is %zu: set it with FLY_INIT(fly_compile_options)",
                     options->size);
  const fly_compile_options *o = &r->options;
  if (o->bake_count < 0 || (o->bake_count && !o->bake))
    return flyi_fail(error, FLY_ERROR_ARGUMENT, "options.bake is NULL or options.bake_count negative");
  for (int i = 0; i < o->bake_count; i++) {
    if (!o->bake[i].name) return flyi_fail(error, FLY_ERROR_ARGUMENT, "options.bake[%d] has no name", i);
    if (o->bake[i].kind == FLY_ARG_BUFFER)
      return flyi_fail(error, FLY_ERROR_ARGUMENT, "%s: buffers cannot be baked", o->bake[i].name);
    for (int j = 0; j < i; j++)
      if (strcmp(o->bake[i].name, o->bake[j].name) == 0)
        return flyi_fail(error, FLY_ERROR_ARGUMENT, "%s is baked twice", o->bake[i].name);
  }
  if (!(o->clang_seconds >= 0))
    return flyi_fail(error, FLY_ERROR_ARGUMENT, "options.clang_seconds is %g: it must be above 0, or 0 for the default",
                     o->clang_seconds);
  if (!(o->check_seconds >= 0))
    return flyi_fail(error, FLY_ERROR_ARGUMENT, "options.check_seconds is %g: it must be above 0, or 0 for the default",
                     o->check_seconds);
  fly_status status = flyi_isa_parse_any(o->target, &r->isa, error);
  return status ? status : make_key(r, error);
}

static fly_status bake(const flyi_request *r, flyi_declarations *declarations, fly_error *error) {
  for (int i = 0; i < r->options.bake_count; i++) {
    const fly_arg *arg = &r->options.bake[i];
    flyi_parameter *parameter = NULL;
    for (int k = 0; k < declarations->parameter_count; k++)
      if (strcmp(declarations->parameters[k].name, arg->name) == 0) parameter = &declarations->parameters[k];
    if (!parameter)
      return flyi_fail(error, FLY_ERROR_ARGUMENT, "%s has no parameter %.100s to bake", r->name, arg->name);
    uint64_t value;
    fly_status status = flyi_parameter_slot(parameter, arg, &value, error);
    if (status) return status;
    if (parameter->baked && parameter->value != value)
      return flyi_fail(error, FLY_ERROR_ARGUMENT, "parameter %s is baked already, with another value", arg->name);
    parameter->value = value;
    parameter->baked = true;
  }
  return FLY_OK;
}

/* Of a mask's meaning: the same for all targets, names and versions of what compiles. */
static flyi_hash identify(flyi_hash base, const flyi_parameter *parameters, int count) {
  struct {
    flyi_hash before;
    uint64_t number, value;
  } link = {.before = base};
  for (int i = 0; i < count; i++) {
    if (!parameters[i].baked) continue;
    link.number = (uint64_t)i, link.value = parameters[i].value;
    link.before = flyi_hash_bytes(&link, sizeof link);
  }
  return link.before;
}

/* ---- images and masks -------------------------------------------------------------------------------------------- */

/* Takes over the image's bytes. Code for another architecture is not loaded: mask.c lets nobody call it. */
static fly_status load(const flyi_request *r, flyi_bytes *bytes, flyi_section object, flyi_origin origin,
                       fly_mask **out, fly_error *error) {
  flyi_code code = {0};
  const char *cache = r->options.cache;
  fly_status status = flyi_isa_is_here(r->isa) ? flyi_jit_load(object, &code, error) : FLY_OK;
  if (status) {
    flyi_bytes_free(bytes);
    return status;
  }
  uint8_t *data = bytes->data;
  size_t size = bytes->size;
  *bytes = (flyi_bytes){0}; /* owned by the mask now */
  if ((status = flyi_mask_from_image(data, size, code, origin, out, error)) || !cache) return status;
  (*out)->cache = flyi_alloc(strlen(cache) + 1, 1);
  if ((*out)->cache) {
    strcpy((*out)->cache, cache);
    return FLY_OK;
  }
  fly_mask_release(out);
  return flyi_no_memory(error);
}

/* An entry is used only where it is what a compilation would give: somebody may have copied it from another key. */
static bool is_wanted(const flyi_request *r, const flyi_image *image) {
  flyi_hash identity = identify(r->base, image->parameters, image->parameter_count);
  return image->kind == r->kind && flyi_hash_equal(identity, image->identity) && strcmp(image->name, r->name) == 0 &&
         strcmp(image->target, flyi_isa_name(r->isa)) == 0 && image->kernel.type == FLY_TYPE_NONE;
}

void flyi_request_cached(const flyi_request *r, fly_mask **out) {
  flyi_bytes bytes;
  flyi_image image;
  *out = NULL;
  if (!flyi_cache_read(r->options.cache, r->key, &bytes)) return;
  if (flyi_image_read(bytes.data, bytes.size, &image, NULL)) {
    flyi_bytes_free(&bytes);
    return;
  }
  flyi_section code = image.code;
  bool wanted = is_wanted(r, &image);
  flyi_image_free(&image);
  if (wanted)
    load(r, &bytes, code, FLYI_CACHED, out, NULL);
  else
    flyi_bytes_free(&bytes);
}

/* ---- from the symbolic module on --------------------------------------------------------------------------------- */

/* The module without debug locations, as bitcode. */
static fly_status keep_ir(LLVMModuleRef module, flyi_bytes *out, fly_error *error) {
  LLVMMemoryBufferRef buffer = LLVMWriteBitcodeToMemoryBuffer(module);
  bool good = buffer && flyi_bytes_add(out, LLVMGetBufferStart(buffer), LLVMGetBufferSize(buffer));
  if (buffer) LLVMDisposeMemoryBuffer(buffer);
  return good ? FLY_OK : flyi_no_memory(error);
}

fly_status flyi_make_object(LLVMModuleRef module, const flyi_declarations *declarations, flyi_isa isa, flyi_bytes *out,
                            fly_error *error) {
  LLVMModuleRef special = NULL;
  fly_status status = flyi_specialize(module, declarations, isa, &special, error); /* consumes the module */
  if (status) return status;
  LLVMTargetMachineRef machine = flyi_target_machine(isa, error);
  status = machine ? flyi_emit(special, machine, false, out, error) : FLY_ERROR_INTERNAL;
  if (machine) LLVMDisposeTargetMachine(machine);
  LLVMDisposeModule(special);
  return status;
}

static fly_status make_image(const flyi_request *r, LLVMModuleRef module, const flyi_declarations *declarations,
                             flyi_bytes *object, flyi_bytes *out, fly_error *error) {
  flyi_bytes ir = {0}, program = {0};
  uint32_t reads = 0;
  LLVMModuleRef bare = LLVMCloneModule(module);
  LLVMStripModuleDebugInfo(bare);
  fly_status status = keep_ir(bare, &ir, error);
  if (!status && r->kind == FLYI_SCORE)
    reads = flyi_score_reads(module);
  else if (!status)
    status = flyi_analyze(module, declarations, &program, &reads, error);
  LLVMDisposeModule(module);
  if (status)
    LLVMDisposeModule(bare);
  else
    status = flyi_make_object(bare, declarations, r->isa, object, error);
  if (!status) {
    flyi_image image = {.kind = r->kind,
                        .name = r->name,
                        .target = flyi_isa_name(r->isa),
                        .identity = identify(r->base, declarations->parameters, declarations->parameter_count),
                        .reads = reads,
                        .parameter_count = declarations->parameter_count,
                        .buffer_count = declarations->buffer_count,
                        .parameters = declarations->parameters,
                        .buffers = declarations->buffers,
                        .program = {program.data, program.size},
                        .code = {object->data, object->size},
                        .ir = {ir.data, ir.size}};
    status = flyi_image_write(&image, out, error);
  }
  flyi_bytes_free(&ir), flyi_bytes_free(&program);
  return status;
}

fly_status flyi_request_finish(const flyi_request *r, LLVMModuleRef module, flyi_declarations *declarations,
                               fly_mask **out, fly_error *error) {
  flyi_bytes object = {0}, image = {0};
  fly_status status = bake(r, declarations, error);
  if (status) {
    LLVMDisposeModule(module);
    return status;
  }
  status = make_image(r, module, declarations, &object, &image, error);
  if (!status) {
    flyi_cache_write(r->options.cache, r->key, image.data, image.size);
    status = load(r, &image, (flyi_section){object.data, object.size}, FLYI_COMPILED, out, error);
  }
  flyi_bytes_free(&object), flyi_bytes_free(&image);
  return status;
}

/* ---- sources ----------------------------------------------------------------------------------------------------- */

static fly_status check_source(const char *source, const char **name, const fly_compile_options *options,
                               flyi_request *r, fly_error *error) {
  if (!source) return flyi_fail(error, FLY_ERROR_ARGUMENT, "source is NULL");
  bool score = r->kind == FLYI_SCORE;
  if (!*name || !**name) *name = score ? "score.c" : "mask.c";
  if (strlen(*name) > 4000) return flyi_fail(error, FLY_ERROR_ARGUMENT, "the source's name is longer than 4,000 bytes");
  struct {
    flyi_hash source, header, score_header; /* the last one: of a modifier */
  } meaning = {
      flyi_hash_bytes(source, strlen(source)), flyi_hash_bytes(flyi_mask_header, strlen(flyi_mask_header)), {0}};
  if (score) meaning.score_header = flyi_hash_bytes(flyi_score_header, strlen(flyi_score_header));
  r->name = *name;
  r->base = flyi_hash_bytes(&meaning, sizeof meaning);
  return flyi_request_check(options, r, error);
}

/* The source as a symbolic module in `context`. */
static fly_status understand(LLVMContextRef context, const char *source, const flyi_request *r, LLVMModuleRef *module,
                             flyi_declarations *declarations, fly_error *error) {
  flyi_bytes ir = {0};
  fly_status status = flyi_frontend(source, r->name, &r->options, &ir, error);
  flyi_section text = {ir.data, ir.size};
  if (!status && r->kind == FLYI_SCORE)
    status = flyi_verify_score(context, text, r->name, module, declarations, error);
  else if (!status)
    status = flyi_verify(context, text, r->name, module, declarations, error);
  flyi_bytes_free(&ir);
  return status;
}

static fly_status compile(flyi_kind kind, const char *source, const char *name, const fly_compile_options *options,
                          fly_mask **out, fly_error *error) {
  flyi_request request = {.kind = kind};
  flyi_declarations declarations = {0};
  LLVMModuleRef module = NULL;
  if (!out) return flyi_fail(error, FLY_ERROR_ARGUMENT, "out is NULL");
  *out = NULL;
  fly_status status = check_source(source, &name, options, &request, error);
  if (status) return status;
  flyi_request_cached(&request, out);
  if (*out) return FLY_OK;
  LLVMContextRef context = flyi_context_create();
  status = understand(context, source, &request, &module, &declarations, error);
  if (!status) status = flyi_request_finish(&request, module, &declarations, out, error); /* consumes the module */
  flyi_declarations_free(&declarations);
  LLVMContextDispose(context);
  return status;
}

fly_status fly_mask_compile(const char *source, const char *name, const fly_compile_options *options, fly_mask **out,
                            fly_error *error) {
  return compile(FLYI_MASK, source, name, options, out, error);
}

fly_status fly_score_compile(const char *source, const char *name, const fly_compile_options *options, fly_score **out,
                             fly_error *error) {
  fly_mask *score = NULL;
  fly_status status = compile(FLYI_SCORE, source, name, options, out ? &score : NULL, error);
  if (out) *out = (fly_score *)score;
  return status;
}

static fly_status read_file(const char *path, flyi_bytes *out, fly_error *error) {
  FILE *file = fopen(path, "re");
  if (!file) return flyi_fail(error, FLY_ERROR_IO, "%s: %s", path, strerror(errno));
  char part[16384];
  bool good = true;
  for (size_t got; good && out->size <= MAX_SOURCE && (got = fread(part, 1, sizeof part, file)) > 0;)
    good = flyi_bytes_add(out, part, got);
  bool failed = ferror(file);
  int why = errno;
  fclose(file);
  if (failed) return flyi_fail(error, FLY_ERROR_IO, "%s: %s", path, strerror(why));
  if (!good || !flyi_bytes_add(out, "", 1)) return flyi_no_memory(error);
  if (strlen((const char *)out->data) + 1 != out->size)
    return flyi_fail_at(error, path, 0, 0, "the source holds a NUL byte");
  return FLY_OK;
}

static fly_status compile_file(flyi_kind kind, const char *path, const fly_compile_options *options, fly_mask **out,
                               fly_error *error) {
  flyi_bytes source = {0};
  if (!out) return flyi_fail(error, FLY_ERROR_ARGUMENT, "out is NULL");
  *out = NULL;
  if (!path) return flyi_fail(error, FLY_ERROR_ARGUMENT, "path is NULL");
  fly_status status = read_file(path, &source, error);
  if (!status) status = compile(kind, (const char *)source.data, path, options, out, error);
  flyi_bytes_free(&source);
  return status;
}

fly_status fly_mask_compile_file(const char *path, const fly_compile_options *options, fly_mask **out,
                                 fly_error *error) {
  return compile_file(FLYI_MASK, path, options, out, error);
}

fly_status fly_score_compile_file(const char *path, const fly_compile_options *options, fly_score **out,
                                  fly_error *error) {
  fly_mask *score = NULL;
  fly_status status = compile_file(FLYI_SCORE, path, options, out ? &score : NULL, error);
  if (out) *out = (fly_score *)score;
  return status;
}

/* ---- what the compiler made on the way --------------------------------------------------------------------------- */

static fly_status print_module(LLVMModuleRef module, flyi_bytes *out, fly_error *error) {
  char *text = LLVMPrintModuleToString(module);
  bool good = text && flyi_bytes_add(out, text, strlen(text));
  LLVMDisposeMessage(text);
  return good ? FLY_OK : flyi_no_memory(error);
}

static fly_status emit(flyi_kind kind, const char *source, const char *name, const fly_compile_options *options,
                       fly_emit what, char **text, fly_error *error) {
  flyi_request request = {.kind = kind};
  flyi_declarations declarations = {0};
  flyi_bytes bytes = {0};
  LLVMModuleRef module = NULL, special = NULL;
  if (!text) return flyi_fail(error, FLY_ERROR_ARGUMENT, "text is NULL");
  *text = NULL;
  if (what != FLY_EMIT_LL && what != FLY_EMIT_ASM) return flyi_fail(error, FLY_ERROR_ARGUMENT, "what is %d", (int)what);
  fly_status status = check_source(source, &name, options, &request, error);
  if (status) return status;
  LLVMContextRef context = flyi_context_create();
  LLVMTargetMachineRef machine = flyi_target_machine(request.isa, error);
  if (!machine) {
    status = FLY_ERROR_INTERNAL;
    goto done;
  }
  if ((status = understand(context, source, &request, &module, &declarations, error))) goto done;
  if ((status = bake(&request, &declarations, error))) {
    LLVMDisposeModule(module);
    goto done;
  }
  if ((status = flyi_specialize(module, &declarations, request.isa, &special, error))) goto done;
  status = what == FLY_EMIT_LL ? print_module(special, &bytes, error)
                               : flyi_emit(special, machine, true, &bytes, error);
  if (!status && !flyi_bytes_add(&bytes, "", 1)) status = flyi_no_memory(error);
  if (status) goto done;
  *text = (char *)bytes.data;
  bytes = (flyi_bytes){0}; /* the caller's now */
done:
  flyi_bytes_free(&bytes);
  if (special) LLVMDisposeModule(special);
  if (machine) LLVMDisposeTargetMachine(machine);
  flyi_declarations_free(&declarations);
  LLVMContextDispose(context);
  return status;
}

fly_status fly_mask_emit(const char *source, const char *name, const fly_compile_options *options, fly_emit what,
                         char **text, fly_error *error) {
  return emit(FLYI_MASK, source, name, options, what, text, error);
}

fly_status fly_score_emit(const char *source, const char *name, const fly_compile_options *options, fly_emit what,
                          char **text, fly_error *error) {
  return emit(FLYI_SCORE, source, name, options, what, text, error);
}
