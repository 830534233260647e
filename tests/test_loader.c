/* The runtime's own loader: what the compiler makes runs, whatever else is refused, and no page is both writable and
 * executable. */
#include "compiled.h"

#include <elf.h>
#include <llvm-c/IRReader.h>
#include <unistd.h>

#include "compiler/compiler.h"
#include "load_code.h"

static const char source[] = "#include <flymask/mask.h>\nFLY_BUFFER(uint8_t, v, 1);\nFLY_PARAM(int, size, 3);\n"
                             "static const int table[6] = {1, 5, -2, 8, 0, 3};\n"
                             "bool mask(int b, int h, int q, int kv) {\n"
                             "  return v[q / size] == v[kv / size] && table[(q ^ kv) % 6] > h;\n}\n";

static compiled c;

static void setup(void) { c = compiled_from(source, NULL, NULL); }
static void teardown(void) { compiled_free(&c); }

START_TEST(every_truncation_is_refused) {
  fly_error error = {0};
  flyi_section object = c.mask->image.code;
  for (size_t size = 0; size < object.size; size++)
    ck_assert_msg(test_load_code(object.data, size, &error) == FLY_ERROR_IMAGE, "%zu of %zu bytes were loaded", size,
                  object.size);
  ck_assert_int_eq(test_load_code(object.data, object.size, &error), FLY_OK);
}
END_TEST

/* Another byte in the code is other code; in a header it is an error or without effect. It never reads or writes
 * outside. */
START_TEST(a_changed_byte_does_not_crash_the_loader) {
  static const uint8_t changes[] = {0x01, 0x10, 0x80, 0xff};
  fly_error error = {0};
  flyi_section object = c.mask->image.code;
  uint8_t *bytes = malloc(object.size);
  int refused = 0;
  memcpy(bytes, object.data, object.size);
  for (size_t at = 0; at < object.size; at++)
    for (int i = 0; i < 4; i++) {
      bytes[at] ^= changes[i];
      refused += test_load_code(bytes, object.size, &error) != FLY_OK;
      bytes[at] ^= changes[i];
    }
  ck_assert_int_gt(refused, 500);
  free(bytes);
}
END_TEST

/* ---- pages ------------------------------------------------------------------------------------------------------- */

/* The permissions of the mapping that holds an address: "r-xp", or "" where there is none. */
static void permissions(const void *address, char out[5]) {
  FILE *maps = fopen("/proc/self/maps", "r");
  char line[512], found[5];
  unsigned long low, high;
  out[0] = 0;
  while (fgets(line, sizeof line, maps))
    if (sscanf(line, "%lx-%lx %4s", &low, &high, found) == 3 && (unsigned long)address >= low &&
        (unsigned long)address < high)
      memcpy(out, found, 5);
  fclose(maps);
}

static int writable_and_executable(void) {
  FILE *maps = fopen("/proc/self/maps", "r");
  char line[512];
  int count = 0;
  while (fgets(line, sizeof line, maps)) count += strstr(line, " rwx") != NULL || strstr(line, " -wx") != NULL;
  fclose(maps);
  return count;
}

START_TEST(code_is_executable_constants_are_readable_nothing_is_both) {
  fly_error error = {0};
  flyi_code code;
  char pages[5];
  ck_fly_ok(flyi_code_load(c.mask->image.code, &code, &error), error);
  void *entry;
  memcpy(&entry, &code.tile, sizeof entry);
  permissions(entry, pages);
  ck_assert_str_eq(pages, "r-xp");
  permissions((char *)code.handle + code.size - 1, pages); /* constants lie behind the code */
  ck_assert_str_eq(pages, "r--p");
  ck_assert_int_eq(writable_and_executable(), 0);
  char *base = code.handle;
  code.unload(&code);
  permissions(base, pages);
  ck_assert_str_eq(pages, "");
}
END_TEST

START_TEST(loading_and_unloading_does_not_grow) {
  fly_error error = {0};
  int before = 0, after = 0;
  for (int round = 0; round < 2; round++) {
    for (int i = 0; i < 200; i++) {
      flyi_code code;
      ck_fly_ok(flyi_code_load(c.mask->image.code, &code, &error), error);
      code.unload(&code);
    }
    FILE *maps = fopen("/proc/self/maps", "r");
    int *lines = round ? &after : &before;
    for (int ch; (ch = fgetc(maps)) != EOF;) *lines += ch == '\n';
    fclose(maps);
  }
  ck_assert_int_le(after, before + 1);
}
END_TEST

/* ---- objects that no mask makes ---------------------------------------------------------------------------------- */

static flyi_bytes assemble(const char *ir) {
  fly_error error = {0};
  flyi_bytes object;
  char *message = NULL;
  LLVMModuleRef module;
  LLVMContextRef context = flyi_context_create();
  LLVMMemoryBufferRef buffer = LLVMCreateMemoryBufferWithMemoryRangeCopy(ir, strlen(ir), "test");
  ck_assert_msg(!LLVMParseIRInContext(context, buffer, &module, &message), "%s", message);
  LLVMTargetMachineRef machine = flyi_target_machine(FLYI_X86_64, &error);
  ck_fly_ok(flyi_emit(module, machine, false, &object, &error), error);
  LLVMDisposeTargetMachine(machine);
  LLVMDisposeModule(module);
  LLVMContextDispose(context);
  return object;
}

#define HEAD "target triple = \"x86_64-pc-linux-gnu\"\n"
#define ENTRY "define void @fly_tile_bits(ptr %a, i32 %b, i32 %h, i32 %q, i32 %kv, ptr %bits) nounwind {\n"

static void refused(const char *ir, fly_status status, const char *part) {
  fly_error error = {0};
  flyi_bytes object = assemble(ir);
  ck_assert_int_eq(test_load_code(object.data, object.size, &error), status);
  ck_assert_msg(strstr(error.message, part) != NULL, "\"%s\" is not in \"%s\"", part, error.message);
  flyi_bytes_free(&object);
}

START_TEST(what_a_mask_does_not_need_is_refused) {
  refused(HEAD "declare void @system(ptr)\n" ENTRY "call void @system(ptr %a)\nret void\n}\n", FLY_ERROR_UNSUPPORTED,
          "system, which is not there");
  refused(HEAD "@x = external global i32\n" ENTRY "%v = load i32, ptr @x\nstore i32 %v, ptr %bits\nret void\n}\n",
          FLY_ERROR_UNSUPPORTED, "x, which is not there");
  refused(HEAD "@x = weak constant i32 5\n" ENTRY "%v = load i32, ptr @x\nstore i32 %v, ptr %bits\nret void\n}\n",
          FLY_ERROR_IMAGE, "relocation of type");
  refused(HEAD "@x = internal global i32 5\n" ENTRY "%v = load i32, ptr @x\n%w = add i32 %v, 1\nstore i32 %w, ptr @x\n"
               "store i32 %w, ptr %bits\nret void\n}\n",
          FLY_ERROR_IMAGE, "neither code nor constants");
  refused(HEAD "@x = internal global [9 x i32] zeroinitializer\n" ENTRY "%v = load i32, ptr @x\nstore i32 %b, ptr @x\n"
               "store i32 %v, ptr %bits\nret void\n}\n",
          FLY_ERROR_IMAGE, "neither code nor constants");
  refused(HEAD "@x = thread_local global i32 0\n" ENTRY "store i32 %b, ptr @x\nret void\n}\n", FLY_ERROR_IMAGE, "");
  refused(HEAD "define void @other(ptr %a) {\nret void\n}\n", FLY_ERROR_IMAGE, "no entry");
  refused(HEAD "define internal void @fly_tile_bits(ptr %a) {\nret void\n}\n", FLY_ERROR_IMAGE, "no entry");
  refused(HEAD "@fly_tile_bits = constant i64 5\n", FLY_ERROR_IMAGE, "the entry is no function");
  refused(HEAD "declare void @fly_tile_bits(ptr)\ndefine void @f(ptr %a) nounwind {\ncall void @fly_tile_bits(ptr %a)\n"
               "ret void\n}\n",
          FLY_ERROR_IMAGE, "no entry");
}
END_TEST

START_TEST(another_files_header_is_refused) {
  fly_error error = {0};
  flyi_section object = c.mask->image.code;
  uint8_t *bytes = malloc(object.size);
  static const struct {
    size_t at;
    uint8_t value;
  } changes[] = {{0, 0},
                 {EI_CLASS, ELFCLASS32},
                 {EI_DATA, ELFDATA2MSB},
                 {offsetof(Elf64_Ehdr, e_type), ET_DYN},
                 {offsetof(Elf64_Ehdr, e_type), ET_EXEC},
                 {offsetof(Elf64_Ehdr, e_machine), EM_AARCH64 & 0xff},
                 {offsetof(Elf64_Ehdr, e_shentsize), 40},
                 {offsetof(Elf64_Ehdr, e_phnum), 1}};
  for (size_t i = 0; i < sizeof changes / sizeof *changes; i++) {
    memcpy(bytes, object.data, object.size);
    bytes[changes[i].at] = changes[i].value;
    ck_assert_int_eq(test_load_code(bytes, object.size, &error), FLY_ERROR_IMAGE);
  }
  free(bytes);
}
END_TEST

/* memset and memcpy of sizes that are not known when compiled are calls, far from the code. */
START_TEST(calls_of_the_c_librarys_memory_functions_work) {
  fly_error error = {0};
  flyi_bytes object = assemble(
      HEAD "declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)\n"
           "declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)\n"
           "declare void @llvm.memmove.p0.p0.i64(ptr, ptr, i64, i1)\n" ENTRY
           "%n = zext i32 %b to i64\n%from = getelementptr i8, ptr %bits, i64 64\n"
           "%on = getelementptr i8, ptr %bits, i64 3\n"
           "call void @llvm.memset.p0.i64(ptr %bits, i8 -91, i64 %n, i1 false)\n"
           "call void @llvm.memcpy.p0.p0.i64(ptr %from, ptr %bits, i64 %n, i1 false)\n"
           "call void @llvm.memmove.p0.p0.i64(ptr %on, ptr %from, i64 %n, i1 false)\nret void\n}\n");
  for (int own = 0; own < 2; own++) {
    flyi_code code;
    uint8_t bits[512] = {0}, wanted[512] = {0};
    flyi_section section = {object.data, object.size};
    ck_fly_ok((own ? flyi_code_load : flyi_jit_load)(section, &code, &error), error);
    code.tile(NULL, 40, 0, 0, 0, (uint64_t *)bits);
    memset(wanted, 0xa5, 40), memcpy(wanted + 64, wanted, 40), memmove(wanted + 3, wanted + 64, 40);
    ck_assert_mem_eq(bits, wanted, sizeof bits);
    code.unload(&code);
  }
  flyi_bytes_free(&object);
}
END_TEST

START_TEST(orc_reports_what_is_missing_without_a_word_on_stderr) {
  fly_error error = {0};
  flyi_code code = {0};
  flyi_bytes object = assemble(HEAD "declare void @fly_no_such_function()\n" ENTRY
                                    "call void @fly_no_such_function()\nret void\n}\n");
  FILE *sink = tmpfile();
  ck_assert_ptr_nonnull(sink);
  fflush(stderr);
  int kept = dup(2);
  dup2(fileno(sink), 2);
  fly_status status = flyi_jit_load((flyi_section){object.data, object.size}, &code, &error);
  dup2(kept, 2);
  close(kept);
  ck_assert_int_eq(status, FLY_ERROR_INTERNAL);
  ck_assert(code.tile == NULL);
  ck_assert_int_eq(fseek(sink, 0, SEEK_END), 0);
  ck_assert_int_eq(ftell(sink), 0);
  fclose(sink);
  flyi_bytes_free(&object);
  static const uint8_t noise[64] = "not an object";
  ck_assert_int_eq(flyi_jit_load((flyi_section){noise, sizeof noise}, &code, &error), FLY_ERROR_INTERNAL);
}
END_TEST

static Suite *suite(void) {
  Suite *s = suite_create("loader");
  TCase *masks = tcase_create("masks"), *others = tcase_create("others");
  tcase_add_unchecked_fixture(masks, setup, teardown);
  tcase_add_test(masks, every_truncation_is_refused);
  tcase_add_test(masks, a_changed_byte_does_not_crash_the_loader);
  tcase_add_test(masks, code_is_executable_constants_are_readable_nothing_is_both);
  tcase_add_test(masks, loading_and_unloading_does_not_grow);
  tcase_add_test(masks, another_files_header_is_refused);
  suite_add_tcase(s, masks);
  tcase_add_test(others, what_a_mask_does_not_need_is_refused);
  tcase_add_test(others, calls_of_the_c_librarys_memory_functions_work);
  tcase_add_test(others, orc_reports_what_is_missing_without_a_word_on_stderr);
  suite_add_tcase(s, others);
  return s;
}

FLY_TEST_MAIN(suite)
