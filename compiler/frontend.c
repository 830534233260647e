/* frontend.c: from a mask's source to textual LLVM IR, by clang in a child process.
 *
 * Input: a C text that is not trusted. Output: IR as text (so that nothing is assembled on the way), unoptimised, with
 * debug locations. The child gets a virtual file system that holds mask.h, score.h and a few of clang's own headers and
 * does not fall through to the real one: what else a source names does not exist for it. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "compiler.h"
#include "process.h"
#include "toolchain.h"

#define HEADERS "/flymask-include" /* where the virtual files are */

enum { MOST_SOURCE = 1 << 20, MOST_OUTPUT = 8 << 20 };

/* ---- What clang is told ------------------------------------------------------------------------------------------ */

/* The headers of a freestanding implementation, with the parts that clang 18 and later split them into. */
static const char *const resource_headers[] = {"float.h",
                                               "iso646.h",
                                               "limits.h",
                                               "stdalign.h",
                                               "stdbool.h",
                                               "stddef.h",
                                               "stdint.h",
                                               "stdnoreturn.h",
                                               "__stddef_header_macro.h",
                                               "__stddef_max_align_t.h",
                                               "__stddef_null.h",
                                               "__stddef_nullptr_t.h",
                                               "__stddef_offsetof.h",
                                               "__stddef_ptrdiff_t.h",
                                               "__stddef_rsize_t.h",
                                               "__stddef_size_t.h",
                                               "__stddef_unreachable.h",
                                               "__stddef_wchar_t.h",
                                               "__stddef_wint_t.h",
                                               "__float_float.h", /* clang 22 */
                                               "__float_header_macro.h",
                                               "__float_infinity_nan.h"};

#define HEADER_COUNT (int)(sizeof resource_headers / sizeof *resource_headers)

static const char *const clang_flags[] = {
    "--no-default-config", "--target=x86_64-unknown-linux-gnu", "-x", "c", "-std=gnu17", "-S", "-emit-llvm", "-o", "-",
    /* unoptimised, but not optnone: the optimiser comes after our guards */
    "-O1", "-Xclang", "-disable-llvm-passes", "-Xclang", "-disable-lifetime-markers", "-g", "-gcolumn-info",
    "-fdebug-compilation-dir=.",
    /* one meaning (mask.h) */
    "-fwrapv", "-ffp-contract=off", "-ftrivial-auto-var-init=zero", "-fno-math-errno", "-ffreestanding",
    "-fno-strict-aliasing", "-fno-gnu-inline-asm",
    /* nothing in the IR that a mask has no use for */
    "-fno-vectorize", "-fno-slp-vectorize", "-fno-jump-tables", "-fno-pic", "-fno-stack-protector",
    "-fno-asynchronous-unwind-tables", "-fno-unwind-tables", "-fno-exceptions", "-fomit-frame-pointer",
    /* no files but those of the overlay */
    "-nostdinc", "-isystem", HEADERS, "-ivfsoverlay", "/proc/self/fd/4", "-DFLYMASK_COMPILING",
    /* one error, in one line */
    "-fno-caret-diagnostics", "-fno-color-diagnostics", "-fno-diagnostics-show-option", "-fno-diagnostics-fixit-info",
    "-ferror-limit=1", "-fno-crash-diagnostics",
    /* no warnings but those that mean that a result is undefined */
    "-Wno-everything", "-Werror=return-type", "-Werror=uninitialized", "-Werror=sometimes-uninitialized",
    "-Werror=division-by-zero", "-Werror=shift-count-overflow", "-Werror=shift-count-negative", "-Werror=array-bounds",
    "-Werror=array-bounds-pointer-arithmetic", "-Werror=implicit-function-declaration", "-Werror=implicit-int",
    "-Werror=int-conversion", "-Werror=incompatible-pointer-types", "-Werror=null-dereference",
    "-Werror=ignored-attributes", "-Werror=literal-conversion"};

#define FLAG_COUNT (int)(sizeof clang_flags / sizeof *clang_flags)

static bool add_text(flyi_bytes *to, const char *text) { return flyi_bytes_add(to, text, strlen(text)); }

/* One file of the overlay. JSON is YAML, so paths are quoted as in JSON. */
static bool add_file(flyi_bytes *overlay, const char *name, const char *directory, const char *file) {
  bool good = add_text(overlay, "  {\"type\": \"file\", \"name\": \"" HEADERS "/") && add_text(overlay, name) &&
              add_text(overlay, "\", \"external-contents\": \"");
  for (int part = 0; part < 2; part++)
    for (const char *c = part ? file : directory; good && *c; c++)
      good = (*c != '"' && *c != '\\') || flyi_bytes_add(overlay, "\\", 1) ? flyi_bytes_add(overlay, c, 1) : false;
  return good && add_text(overlay, "\"},\n");
}

/* What the child's file system is made of. Its descriptor 3 is mask.h, 4 is this text, 5 is score.h. */
static bool write_overlay(const char *resources, flyi_bytes *overlay) {
  bool good = add_text(overlay, "{\"version\": 0, \"redirecting-with\": \"redirect-only\", "
                                "\"use-external-names\": false, \"roots\": [\n") &&
              add_file(overlay, "flymask/mask.h", "", "/proc/self/fd/3") &&
              add_file(overlay, "flymask/score.h", "", "/proc/self/fd/5");
  for (int i = 0; i < HEADER_COUNT; i++)
    good = good && add_file(overlay, resource_headers[i], resources, resource_headers[i]);
  return good && add_text(overlay, "]}\n");
}

/* ---- What clang answers ------------------------------------------------------------------------------------------ */

static int number(const char *text, const char **end) {
  long value = 0;
  while (isdigit((unsigned char)*text) && value < 100000000) value = value * 10 + (*text++ - '0');
  *end = text;
  return (int)value;
}

/* Splits "FILE:LINE:COLUMN: error: MESSAGE", one line of clang's; false where it is none. */
static bool parse_diagnostic(char *line, const char **file, int *row, int *column, char **message) {
  char *mark = strstr(line, ": fatal error: "), *plain = strstr(line, ": error: ");
  if (!mark || (plain && plain < mark)) mark = plain;
  if (!mark) return false;
  *message = strstr(mark, "error: ") + strlen("error: ");
  *mark = 0;
  *file = line;
  *row = *column = 0;
  char *second = strrchr(line, ':');
  if (!second) return true;
  *second = 0;
  char *first = strrchr(line, ':');
  const char *end, *end2;
  if (!first) return *second = ':', true;
  *row = number(first + 1, &end);
  *column = number(second + 1, &end2);
  if (*end || *end2) return *row = *column = 0, *second = ':', true;
  *first = 0;
  return true;
}

/* Clang's first error as ours. False where it reported none. */
static bool report(char *errors, const char *clang, const char *name, fly_error *error, fly_status *status) {
  for (char *line = errors; line && *line;) {
    char *next = strchr(line, '\n');
    if (next) *next++ = 0;
    const char *file;
    char *message;
    int row, column;
    if (parse_diagnostic(line, &file, &row, &column, &message)) {
      if (!row) {
        *status = flyi_fail(error, FLY_ERROR_TOOL, "%s failed on %s: %s (clang %d to %d will do: apt install clang-%d)",
                            clang, name, message, FLYI_OLDEST_CLANG, FLYI_LLVM_MAJOR, FLYI_LLVM_MAJOR);
        return true;
      }
      bool header = !strncmp(file, HEADERS "/", strlen(HEADERS "/")); /* any other name is from a #line in the source */
      file = header ? file + strlen(HEADERS "/") : name;
      for (char *c = message; *c; c++)
        if ((unsigned char)*c < ' ' || *c == 127) *c = '?';
      bool missing = strstr(message, "file not found") != NULL;
      *status = flyi_fail_at(error, file, row, column, "%s%s", message,
                             missing ? "; a mask may include <flymask/mask.h>, <stdint.h>, <stddef.h>, <stdbool.h>, "
                                       "<limits.h>, <float.h>, <iso646.h>, and nothing else"
                                     : "");
      return true;
    }
    line = next;
  }
  return false;
}

/* The major version of the clang that wrote this IR, from its !llvm.ident; 0 where there is none. */
static int version_of(const char *ir) {
  const char *end, *line = strstr(ir, "\n!llvm.ident = ");
  for (line = line ? strchr(line + 1, '\n') : NULL; line; line = strchr(line + 1, '\n')) {
    if (line[1] != '!') continue;
    const char *stop = strchr(line + 1, '\n'), *found = strstr(line, " = !{!\"");
    const char *version = found ? strstr(found, "clang version ") : NULL;
    if (version && stop && version < stop) return number(version + strlen("clang version "), &end);
  }
  return 0;
}

static fly_status too_new(const char *path, int version, fly_error *error) {
  return flyi_fail(error, FLY_ERROR_TOOL,
                   "%s is clang %d, newer than the LLVM %d of this build: apt install clang-%d, or name another by "
                   "FLYMASK_CLANG",
                   path, version, FLYI_LLVM_MAJOR, FLYI_LLVM_MAJOR);
}

/* What to say about a child that ended: FLY_OK where it did its work. */
static fly_status judge(const flyi_child *child, flyi_end end, int code, const flyi_bytes *ir, flyi_bytes *errors,
                        const char *name, fly_error *error) {
  fly_status status;
  if (end == FLYI_END_TIME)
    return flyi_fail(error, FLY_ERROR_TOOL, "clang was stopped after %g s: the source of %s takes too long to compile",
                     child->seconds, name);
  if (end == FLYI_END_OUTPUT)
    return flyi_fail(error, FLY_ERROR_TOOL, "clang was stopped: the source of %s makes more than %zu MiB of IR", name,
                     child->output >> 20);
  bool failed = end == FLYI_END_SIGNAL || code > 0 || !ir->size;
  if (failed && report((char *)errors->data, child->path, name, error, &status)) return status;
  if (failed) {
    const char *text = (const char *)errors->data;
    return flyi_fail(error, FLY_ERROR_TOOL, "%s failed (%s %d) on %s, perhaps by its memory limit of %zu MiB: %.*s",
                     child->path, end == FLYI_END_SIGNAL ? "signal" : "status", code, name, child->memory >> 20,
                     (int)strcspn(text, "\n"), text);
  }
  int version = version_of((const char *)ir->data);
  if (version > FLYI_LLVM_MAJOR) return too_new(child->path, version, error);
  if (version && version < FLYI_OLDEST_CLANG)
    return flyi_fail(error, FLY_ERROR_TOOL, "%s is clang %d, too old (at least %d): apt install clang-%d", child->path,
                     version, FLYI_OLDEST_CLANG, FLYI_LLVM_MAJOR);
  return FLY_OK;
}

/* ---- The stage --------------------------------------------------------------------------------------------------- */

/* Refuses what is not UTF-8 (RFC 3629), and ASCII's control characters but those that lay out a text, at its place. */
static fly_status check_text(const char *source, const char *name, fly_error *error) {
  if (strnlen(source, MOST_SOURCE + 1) > MOST_SOURCE)
    return flyi_fail_at(error, name, 0, 0, "the source is larger than 1 MiB");
  int line = 1, column = 1;
  for (const unsigned char *c = (const unsigned char *)source; *c; c++, column++) {
    if (*c == '\n') line++, column = 0;
    if ((*c < 0x20 && !strchr("\t\n\r\f", *c)) || *c == 0x7F)
      return flyi_fail_at(error, name, line, column, "the source has a control character: byte 0x%02X", *c);
    if (*c < 0x80) continue;
    int more = *c >= 0xC2 && *c < 0xE0 ? 1 : *c >= 0xE0 && *c < 0xF0 ? 2 : *c >= 0xF0 && *c < 0xF5 ? 3 : 0;
    unsigned low = *c == 0xE0 ? 0xA0 : *c == 0xF0 ? 0x90 : 0x80, high = *c == 0xED ? 0x9F : *c == 0xF4 ? 0x8F : 0xBF;
    bool good = more && c[1] >= low && c[1] <= high;
    for (int i = 2; good && i <= more; i++) good = c[i] >= 0x80 && c[i] <= 0xBF;
    if (!good) return flyi_fail_at(error, name, line, column, "the source is not UTF-8: byte 0x%02X", *c);
    c += more, column += more;
  }
  return FLY_OK;
}

static fly_status run_clang(const char *source, const char *name, const fly_compile_options *options, const char *flag,
                            flyi_bytes *ir, fly_error *error) {
  fly_compile_options limits = options ? *options : (fly_compile_options){0};
  flyi_toolchain tools = {0};
  flyi_bytes overlay = {0}, errors = {0};
  const char *arguments[FLAG_COUNT + 4] = {"clang"};
  flyi_end end;
  int code;
  if (!(limits.clang_seconds > 0)) limits.clang_seconds = 10;
  if (limits.clang_seconds > FLYI_MOST_SECONDS) limits.clang_seconds = FLYI_MOST_SECONDS;
  if (!limits.clang_bytes) limits.clang_bytes = (size_t)2 << 30;
  *ir = (flyi_bytes){0};

  fly_status status = check_text(source, name, error);
  if (!status) status = flyi_toolchain_find(&limits, &tools, error);
  if (status) goto done;
  if (!write_overlay(tools.resources, &overlay)) {
    status = flyi_no_memory(error);
    goto done;
  }
  memcpy(arguments + 1, clang_flags, sizeof clang_flags);
  arguments[FLAG_COUNT + 1] = "-";
  arguments[FLAG_COUNT + 2] = flag;
  flyi_child child = {
      .path = tools.clang,
      .arguments = (char *const *)arguments,
      .environment = tools.environment,
      .input = {source, strlen(source)},
      .files = {{flyi_mask_header, (size_t)(flyi_mask_header_end - flyi_mask_header)},
                {overlay.data, overlay.size},
                {flyi_score_header, (size_t)(flyi_score_header_end - flyi_score_header)}},
      .file_count = 3,
      .seconds = limits.clang_seconds,
      .memory = limits.clang_bytes,
      .output = MOST_OUTPUT};
  status = flyi_child_run(&child, ir, &errors, &end, &code, error);
  if (!status) status = judge(&child, end, code, ir, &errors, name, error);

done:
  if (status) flyi_bytes_free(ir);
  flyi_bytes_free(&errors);
  flyi_bytes_free(&overlay);
  flyi_toolchain_free(&tools);
  return status;
}

fly_status flyi_frontend(const char *source, const char *name, const fly_compile_options *options, flyi_bytes *ir,
                         fly_error *error) {
  return run_clang(source, name, options, NULL, ir, error);
}

fly_status flyi_frontend_watched(const char *source, const char *name, const fly_compile_options *options,
                                 flyi_bytes *ir, fly_error *error) {
  return run_clang(source, name, options, "-fno-wrapv", ir, error);
}
