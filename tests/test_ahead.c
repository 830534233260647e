/* What is compiled for another architecture: it becomes the image of a kernel, which that machine's loader knows all
 * of, and nothing here calls it. (tests/runtime runs such images.) */
#include <dirent.h>
#include <elf.h>

#include "call_case.h"

#define TARGET "aarch64"

static const char source[] = "#include <flymask/mask.h>\nFLY_BUFFER(uint8_t, v, 1);\nFLY_PARAM(int, size, 3);\n"
                             "static const int table[6] = {1, 5, -2, 8, 0, 3};\n"
                             "bool mask(int b, int h, int q, int kv) {\n"
                             "  return v[q / size] == v[kv / size] && table[(q ^ kv) % 6] > h;\n}\n";
static const char modifier[] = "#include <flymask/score.h>\n"
                               "float score(float s, int b, int h, int q, int kv) { return tanhf(s) + expf(s - h); }\n";

static const fly_compile_options ahead = {FLY_INIT(fly_compile_options), .target = TARGET, .cache = ""};
static const fly_compile_options here = {FLY_INIT(fly_compile_options), .cache = ""};

static fly_mask *compiled_mask(const fly_compile_options *options) {
  fly_error error = {0};
  fly_mask *mask;
  ck_fly_ok(fly_mask_compile(source, "ahead.c", options, &mask, &error), error);
  return mask;
}

static fly_score *compiled_score(const fly_compile_options *options) {
  fly_error error = {0};
  fly_score *score;
  ck_fly_ok(fly_score_compile(modifier, "modifier.c", options, &score, &error), error);
  return score;
}

static void ck_says(const fly_error *error, const char *part) {
  ck_assert_msg(strstr(error->message, part) != NULL, "\"%s\" is not in \"%s\"", part, error->message);
}

/* ---- what the other machine's loader meets ----------------------------------------------------------------------- */

typedef struct object {
  const uint8_t *data;
  Elf64_Ehdr header;
  Elf64_Shdr sections[64], symbols;
} object;

/* A symbol is in a section, or one of the functions that the loader knows. */
static void check_symbol(const object *o, uint64_t index, const char *what) {
  Elf64_Sym symbol;
  memcpy(&symbol, o->data + o->symbols.sh_offset + index * sizeof symbol, sizeof symbol);
  if (symbol.st_shndx != SHN_UNDEF) return;
  const char *name = (const char *)o->data + o->sections[o->symbols.sh_link].sh_offset + symbol.st_name;
  bool known = strcmp(name, "memcpy") == 0 || strcmp(name, "memmove") == 0 || strcmp(name, "memset") == 0;
  ck_assert_msg(known, "%s calls %s", what, name);
}

/* At addresses where every offset fits, and code and constants are close. */
static void check_relocations(const object *o, const Elf64_Shdr *table, const char *what) {
  fly_error error = {0};
  const uint64_t base = 0x7f1200000000;
  const Elf64_Shdr *target = &o->sections[table->sh_info];
  if (!(target->sh_flags & SHF_ALLOC)) return;
  for (uint64_t at = 0; at < table->sh_size; at += sizeof(Elf64_Rela)) {
    Elf64_Rela r;
    uint8_t word[4];
    memcpy(&r, o->data + table->sh_offset + at, sizeof r);
    memcpy(word, o->data + target->sh_offset + r.r_offset, 4);
    check_symbol(o, ELF64_R_SYM(r.r_info), what);
    fly_status status = flyi_relocate(EM_AARCH64, ELF64_R_TYPE(r.r_info), word, base + 0x40, base + r.r_offset, &error);
    ck_assert_msg(status == FLY_OK, "%s: %s", what, error.message);
  }
}

static void check_object(flyi_section code, const char *what) {
  object o = {.data = code.data};
  memcpy(&o.header, o.data, sizeof o.header);
  ck_assert_int_eq(o.header.e_machine, EM_AARCH64);
  ck_assert_int_le(o.header.e_shnum, 64);
  memcpy(o.sections, o.data + o.header.e_shoff, o.header.e_shnum * sizeof(Elf64_Shdr));
  for (int i = 1; i < o.header.e_shnum; i++) {
    const Elf64_Shdr *s = &o.sections[i];
    if (s->sh_type == SHT_SYMTAB) o.symbols = *s;
    bool data = s->sh_flags & SHF_ALLOC && s->sh_size && (s->sh_type != SHT_PROGBITS || s->sh_flags & SHF_WRITE);
    ck_assert_msg(!data, "%s has a section that is neither code nor constants", what);
  }
  for (int i = 1; i < o.header.e_shnum; i++)
    if (o.sections[i].sh_type == SHT_RELA) check_relocations(&o, &o.sections[i], what);
}

static bool is_source(const char *name) { return strlen(name) > 2 && strcmp(name + strlen(name) - 2, ".c") == 0; }

START_TEST(the_loader_knows_all_that_masks_and_modifiers_need) { /* _i: masks, score modifiers */
  fly_error error = {0};
  const fly_compile_options options = {FLY_INIT(fly_compile_options), .target = TARGET};
  const char *folder = _i ? FLYMASK_SOURCE "/scores" : FLYMASK_SOURCE "/masks";
  DIR *files = opendir(folder);
  int count = 0;
  ck_assert_ptr_nonnull(files);
  for (struct dirent *e; (e = readdir(files));) {
    char path[512];
    fly_mask *mask = NULL;
    if (!is_source(e->d_name)) continue;
    snprintf(path, sizeof path, "%s/%s", folder, e->d_name);
    if (_i)
      ck_fly_ok(fly_score_compile_file(path, &options, (fly_score **)&mask, &error), error);
    else
      ck_fly_ok(fly_mask_compile_file(path, &options, &mask, &error), error);
    ck_assert_str_eq(mask->image.target, TARGET);
    ck_assert_str_eq(fly_mask_get_info(mask)->target, TARGET);
    check_object(mask->image.code, e->d_name);
    fly_mask_release(&mask);
    count++;
  }
  closedir(files);
  ck_assert_int_ge(count, _i ? 8 : 30);
}
END_TEST

/* ---- what is refused here ---------------------------------------------------------------------------------------- */

START_TEST(a_mask_for_another_machine_is_not_bound) {
  fly_error error = {0};
  fly_bound *bound;
  fly_mask *mask = compiled_mask(&ahead);
  fly_score *score = compiled_score(&ahead);
  ck_assert_int_eq(fly_mask_bind(mask, NULL, 0, &bound, &error), FLY_ERROR_UNSUPPORTED);
  ck_assert_ptr_null(bound);
  ck_says(&error, "ahead.c is compiled for aarch64, and this machine is x86-64");
  ck_assert_int_eq(fly_score_bind(score, NULL, 0, &bound, &error), FLY_ERROR_UNSUPPORTED);
  ck_says(&error, "modifier.c is compiled for aarch64");
  fly_score_release(&score);
  fly_mask_release(&mask);
}
END_TEST

/* Though its source is the same as the bound mask's. */
START_TEST(a_kernel_for_another_machine_is_not_run) {
  fly_error error = {0};
  fly_mask *mask = compiled_mask(&ahead), *own = compiled_mask(&here);
  fly_kernel *kernel;
  fly_bound *bound;
  fly_buffer *buffer;
  uint8_t v[64] = {0};
  ck_fly_ok(fly_buffer_create(FLY_U8, 1, (int64_t[]){64}, v, &buffer, &error), error);
  ck_fly_ok(fly_mask_bind(own, (fly_arg[]){FLY_CAPTURE("v", buffer)}, 1, &bound, &error), error);
  fly_kernel_desc desc = {FLY_INIT(fly_kernel_desc), .type = FLY_F32, .head_dim = 16};
  ck_fly_ok(fly_kernel_create(mask, &desc, &kernel, &error), error);
  call_case t;
  call_init(&t, &(call_spec){.dim = 16, .len_q = 64, .len_kv = 64}, see_all, NULL);
  t.call.kernel = kernel, t.call.bound = bound, t.call.map = NULL;
  ck_assert_int_eq(fly_attention_forward(&t.call, &error), FLY_ERROR_UNSUPPORTED);
  ck_says(&error, "ahead.c is compiled for aarch64, and this machine is x86-64");
  ck_assert_int_eq(fly_attention_backward(&t.call, &error), FLY_ERROR_UNSUPPORTED);
  call_free(&t);
  fly_kernel_release(&kernel);
  fly_bound_release(&bound);
  fly_buffer_release(&buffer);
  fly_mask_release(&mask), fly_mask_release(&own);
}
END_TEST

static void refuse_kernel(fly_mask *mask, const char *target, fly_score *score, const char *part) {
  fly_error error = {0};
  fly_kernel *kernel;
  fly_kernel_desc desc = {FLY_INIT(fly_kernel_desc), .type = FLY_F32, .head_dim = 16, .target = target, .score = score};
  ck_assert_int_eq(fly_kernel_create(mask, &desc, &kernel, &error), FLY_ERROR_ARGUMENT);
  ck_assert_ptr_null(kernel);
  ck_says(&error, part);
}

START_TEST(a_kernel_is_for_one_machine) {
  fly_mask *mask = compiled_mask(&ahead), *own = compiled_mask(&here);
  fly_score *score = compiled_score(&ahead), *own_score = compiled_score(&here);
  refuse_kernel(own, TARGET, NULL, "a kernel for aarch64, and its mask is compiled for x86-64");
  refuse_kernel(mask, "x86-64", NULL, "a kernel for x86-64, and its mask is compiled for aarch64");
  refuse_kernel(mask, "cpu", NULL, "its mask is compiled for aarch64: set the target in fly_compile_options too");
  refuse_kernel(mask, NULL, own_score, "a kernel for aarch64, and its score modifier is compiled for x86-64");
  refuse_kernel(own, NULL, score, "its score modifier is compiled for aarch64");
  fly_score_release(&score), fly_score_release(&own_score);
  fly_mask_release(&mask), fly_mask_release(&own);
}
END_TEST

START_TEST(its_image_does_not_load_here) {
  fly_error error = {0};
  fly_kernel *kernel, *loaded;
  const void *bytes;
  size_t size;
  fly_mask *mask = compiled_mask(&ahead);
  fly_score *score = compiled_score(&ahead);
  fly_kernel_desc desc = {FLY_INIT(fly_kernel_desc), .type = FLY_BF16, .head_dim = 64, .target = TARGET,
                          .score = score};
  ck_fly_ok(fly_kernel_create(mask, &desc, &kernel, &error), error);
  ck_fly_ok(fly_kernel_image(kernel, &bytes, &size, &error), error);
  ck_assert_int_eq(fly_kernel_load(bytes, size, &loaded, &error), FLY_ERROR_IMAGE);
  ck_assert_str_eq(error.message, "an image that does not run here: it is for aarch64, and this machine is x86-64");
  ck_assert_ptr_null(loaded);
  fly_kernel_release(&kernel);
  fly_score_release(&score);
  fly_mask_release(&mask);
}
END_TEST

START_TEST(the_cache_keeps_each_machines_code) {
  fly_error error = {0};
  char folder[] = "/tmp/flymask-ahead-XXXXXX", command[128];
  ck_assert_ptr_nonnull(mkdtemp(folder));
  const fly_compile_options options[] = {{FLY_INIT(fly_compile_options), .target = TARGET, .cache = folder},
                                         {FLY_INIT(fly_compile_options), .cache = folder}};
  for (int round = 0; round < 2; round++)
    for (int i = 0; i < 2; i++) {
      fly_mask *mask = compiled_mask(&options[i]);
      ck_assert_int_eq(fly_mask_get_info(mask)->from_cache, round);
      ck_assert_int_eq(strcmp(fly_mask_get_info(mask)->target, TARGET) == 0, i == 0);
      fly_mask_release(&mask);
    }
  /* Combined for the other machine from masks of either. */
  fly_mask *parts[] = {compiled_mask(&options[0]), compiled_mask(&options[1])}, *both;
  ck_fly_ok(fly_mask_combine(FLY_AND, parts[0], parts[1], &options[0], &both, &error), error);
  ck_assert_str_eq(fly_mask_get_info(both)->target, TARGET);
  check_object(both->image.code, "combined");
  fly_mask_release(&both), fly_mask_release(&parts[0]), fly_mask_release(&parts[1]);
  snprintf(command, sizeof command, "rm -rf %s", folder);
  ck_assert_int_eq(system(command), 0);
}
END_TEST

START_TEST(its_text_can_be_read) {
  fly_error error = {0};
  char *text;
  ck_fly_ok(fly_mask_emit(source, "ahead.c", &ahead, FLY_EMIT_LL, &text, &error), error);
  ck_assert_ptr_nonnull(strstr(text, "target triple = \"aarch64"));
  free(text);
  ck_fly_ok(fly_mask_emit(source, "ahead.c", &ahead, FLY_EMIT_ASM, &text, &error), error);
  ck_assert_ptr_nonnull(strstr(text, FLYI_TILE_SYMBOL ":"));
  ck_assert_ptr_nonnull(strstr(text, "\tadrp\t"));
  free(text);
}
END_TEST

static Suite *suite(void) {
  Suite *s = suite_create("ahead");
  TCase *tests = tcase_create("ahead");
  tcase_add_loop_test(tests, the_loader_knows_all_that_masks_and_modifiers_need, 0, 2);
  tcase_add_test(tests, a_mask_for_another_machine_is_not_bound);
  tcase_add_test(tests, a_kernel_for_another_machine_is_not_run);
  tcase_add_test(tests, a_kernel_is_for_one_machine);
  tcase_add_test(tests, its_image_does_not_load_here);
  tcase_add_test(tests, the_cache_keeps_each_machines_code);
  tcase_add_test(tests, its_text_can_be_read);
  suite_add_tcase(s, tests);
  return s;
}

FLY_TEST_MAIN(suite)
