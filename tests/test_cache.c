/* The cache: what was written is read, whole or not at all; nothing is trusted that another user could have written;
 * whatever is wrong with it costs a compilation and nothing else. */
#include "compiled.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static const flyi_hash key = {0x1122334455667788, 0x99aabbccddeeff00};
static const char entry[] = "99aabbccddeeff001122334455667788.flymask";
static const char source[] = "#include <flymask/mask.h>\nbool mask(int b, int h, int q, int kv) { return kv <= q; }\n";

static char directory[64]; /* of this test, empty at its start */

static void setup(void) {
  strcpy(directory, "/tmp/flymask-test-XXXXXX");
  ck_assert_ptr_nonnull(mkdtemp(directory));
}

static void remove_below(const char *path) {
  char child[512];
  DIR *at = opendir(path);
  for (struct dirent *e; at && (e = readdir(at));) {
    if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0) continue;
    snprintf(child, sizeof child, "%s/%s", path, e->d_name);
    if (unlink(child)) remove_below(child), rmdir(child);
  }
  if (at) closedir(at);
}

static void teardown(void) {
  chmod(directory, 0700);
  remove_below(directory);
  rmdir(directory);
}

static int entries(const char *path) {
  int count = 0;
  DIR *at = opendir(path);
  ck_assert_ptr_nonnull(at);
  for (struct dirent *e; (e = readdir(at));) count += e->d_name[0] != '.';
  closedir(at);
  return count;
}

static const char *below(const char *name) {
  static char path[512];
  snprintf(path, sizeof path, "%s/%s", directory, name);
  return path;
}

/* What changes the process for good (limits, its user, its umask) runs in a child: suites may run without a process for
 * each test. `body` must not use Check. */
static bool in_child(bool (*body)(void)) {
  int status = -1;
  fflush(NULL);
  pid_t pid = fork();
  if (pid == 0) _exit(!body());
  return pid > 0 && waitpid(pid, &status, 0) == pid && status == 0;
}

static bool reads(const char *from, const char *wanted) {
  flyi_bytes bytes;
  if (!flyi_cache_read(from, key, &bytes)) {
    ck_assert_ptr_null(bytes.data);
    return false;
  }
  bool same = bytes.size == strlen(wanted) && memcmp(bytes.data, wanted, bytes.size) == 0;
  flyi_bytes_free(&bytes);
  return same;
}

START_TEST(an_entry_is_read_as_it_was_written) {
  ck_assert(!reads(directory, "hello"));
  flyi_cache_write(directory, key, "hello", 5);
  ck_assert(reads(directory, "hello"));
  flyi_cache_write(directory, key, "other", 5);
  ck_assert(reads(directory, "other"));
  ck_assert_int_eq(access(below(entry), R_OK), 0);
  ck_assert_int_eq(entries(directory), 1);
  flyi_bytes bytes;
  ck_assert(!flyi_cache_read(directory, (flyi_hash){1, 2}, &bytes));
}
END_TEST

static mode_t mode_of(const char *path) {
  struct stat info;
  ck_assert_int_eq(stat(path, &info), 0);
  return info.st_mode & 0777;
}

static bool write_with_an_open_umask(void) {
  umask(0);
  flyi_cache_write(below("a/b"), key, "hello", 5);
  return true;
}

START_TEST(missing_directories_are_made_for_the_user_alone) {
  ck_assert(in_child(write_with_an_open_umask));
  ck_assert(reads(below("a/b"), "hello"));
  ck_assert_int_eq(mode_of(below("a")), 0700);
  ck_assert_int_eq(mode_of(below("a/b")), 0700);
  char path[600];
  snprintf(path, sizeof path, "%s/%s", below("a/b"), entry);
  ck_assert_int_eq(mode_of(path), 0600);
}
END_TEST

START_TEST(the_default_directory_is_the_users) {
  setenv("XDG_CACHE_HOME", below("xdg"), 1);
  setenv("HOME", below("home"), 1);
  flyi_cache_write(NULL, key, "by xdg", 6);
  ck_assert(reads(below("xdg/flymask"), "by xdg"));
  ck_assert(reads(NULL, "by xdg"));
  setenv("XDG_CACHE_HOME", "relative", 1); /* the XDG specification: to be ignored */
  ck_assert(!reads(NULL, "by xdg"));
  flyi_cache_write(NULL, key, "by home", 7);
  ck_assert(reads(below("home/.cache/flymask"), "by home"));
  unsetenv("XDG_CACHE_HOME");
  ck_assert(reads(NULL, "by home"));
  unsetenv("HOME");
  ck_assert(!reads(NULL, "by home"));
  flyi_cache_write(NULL, key, "nowhere", 7);
  ck_assert(!reads("", "by home"));
  flyi_cache_write("", key, "nowhere", 7);
}
END_TEST

START_TEST(a_directory_that_others_may_write_is_not_used) {
  flyi_cache_write(directory, key, "hello", 5);
  static const mode_t modes[] = {0720, 0702, 0777};
  for (int i = 0; i < 3; i++) {
    chmod(directory, modes[i]);
    ck_assert(!reads(directory, "hello"));
    flyi_cache_write(directory, key, "other", 5);
  }
  chmod(directory, 0755);
  ck_assert(reads(directory, "hello"));
  if (geteuid() == 0) { /* only root can give it away */
    ck_assert_int_eq(chown(directory, 12345, 12345), 0);
    ck_assert(!reads(directory, "hello"));
    flyi_cache_write(directory, key, "other", 5);
    ck_assert_int_eq(chown(directory, 0, 0), 0);
    ck_assert(reads(directory, "hello"));
  }
}
END_TEST

START_TEST(foreign_things_in_the_place_of_an_entry_are_a_miss) {
  flyi_cache_write(directory, key, "hello", 5);
  char kept[600];
  snprintf(kept, sizeof kept, "%s", below("kept"));
  ck_assert_int_eq(rename(below(entry), kept), 0);
  ck_assert_int_eq(symlink(kept, below(entry)), 0);
  ck_assert(!reads(directory, "hello"));
  ck_assert_int_eq(unlink(below(entry)), 0);
  ck_assert_int_eq(mkfifo(below(entry), 0600), 0);
  ck_assert(!reads(directory, "hello")); /* and does not wait for a writer */
  ck_assert_int_eq(unlink(below(entry)), 0);
  ck_assert_int_eq(mkdir(below(entry), 0700), 0);
  ck_assert(!reads(directory, "hello"));
  flyi_cache_write(directory, key, "other", 5); /* cannot replace it, and leaves nothing behind */
  ck_assert_int_eq(entries(directory), 2);
  ck_assert_int_eq(rmdir(below(entry)), 0);
  ck_assert_int_eq(rename(kept, below(entry)), 0);
  ck_assert_int_eq(chmod(below(entry), 0606), 0);
  ck_assert(!reads(directory, "hello"));
  ck_assert_int_eq(chmod(below(entry), 0600), 0);
  ck_assert(reads(directory, "hello"));
  ck_assert_int_eq(truncate(below(entry), 0), 0);
  ck_assert(!reads(directory, ""));
}
END_TEST

static bool write_beyond_the_limit(void) {
  static char large[100000];
  const struct rlimit limit = {4096, 4096};
  sigset_t pending, blocked;
  memset(large, 'x', sizeof large - 1);
  if (setrlimit(RLIMIT_FSIZE, &limit)) return false;
  flyi_cache_write(directory, key, large, sizeof large);
  return sigpending(&pending) == 0 && sigprocmask(SIG_SETMASK, NULL, &blocked) == 0 &&
         !sigismember(&pending, SIGXFSZ) && !sigismember(&blocked, SIGXFSZ);
}

START_TEST(a_full_disk_leaves_no_entry_and_does_not_end_the_process) {
  flyi_cache_write(directory, key, "before", 6);
  ck_assert(in_child(write_beyond_the_limit));
  ck_assert(reads(directory, "before"));
  ck_assert_int_eq(entries(directory), 1);
}
END_TEST

static void make_file(const char *name, time_t age) {
  const struct timespec times[2] = {{.tv_sec = time(NULL) - age}, {.tv_sec = time(NULL) - age}};
  int file = open(below(name), O_WRONLY | O_CREAT, 0600);
  ck_assert_int_ge(file, 0);
  ck_assert_int_eq(futimens(file, times), 0);
  close(file);
}

START_TEST(what_killed_writers_left_is_removed) {
  enum { LONG_AGO = 4000, LATELY = 3000 };
  static const char *const kept[] = {"99aabbccddeeff001122334455667788.flymask.12.1",
                                     "99aabbccddeeff00112233445566.flymask.12.0",
                                     "000102030405060708090a0b0c0d0e0f.flymask", "notes"};
  make_file("99aabbccddeeff001122334455667788.flymask.12.0", LONG_AGO);
  make_file("000102030405060708090a0b0c0d0e0f.flymask.7777777.3", LONG_AGO);
  for (int i = 0; i < 4; i++) make_file(kept[i], i ? LONG_AGO : LATELY);
  flyi_cache_write(directory, key, "hello", 5);
  for (int i = 0; i < 4; i++) ck_assert_msg(access(below(kept[i]), F_OK) == 0, "%s", kept[i]);
  ck_assert_int_eq(entries(directory), 5);
  ck_assert(reads(directory, "hello"));
}
END_TEST

/* Writers that replace an entry all the time, and a reader that must always find a whole one. */
START_TEST(a_reader_never_sees_half_an_entry) {
  enum { WRITERS = 3, SIZE = 60000 };
  static char block[SIZE + 1];
  memset(block, 'a', SIZE);
  flyi_cache_write(directory, key, block, SIZE);
  pid_t writers[WRITERS];
  for (int w = 0; w < WRITERS; w++) {
    if ((writers[w] = fork()) != 0) continue;
    memset(block, 'b' + w, SIZE);
    for (int i = 0; i < 150; i++) flyi_cache_write(directory, key, block, SIZE - (size_t)(i % 7) * 1000);
    _exit(0);
  }
  for (int left = WRITERS, status; left;) {
    flyi_bytes bytes;
    ck_assert(flyi_cache_read(directory, key, &bytes));
    ck_assert_uint_eq(bytes.size % 1000, 0);
    for (size_t i = 1; i < bytes.size; i++) ck_assert(bytes.data[i] == bytes.data[0]);
    flyi_bytes_free(&bytes);
    while (left && waitpid(-1, &status, WNOHANG) > 0) {
      ck_assert_int_eq(status, 0);
      left--;
    }
  }
  ck_assert_int_eq(entries(directory), 1);
}
END_TEST

/* ---- with the compiler ------------------------------------------------------------------------------------------- */

/* Without Check: children run it too. */
static bool compile_works(bool *from_cache) {
  fly_error error = {0};
  fly_mask *mask = NULL;
  const fly_compile_options options = {FLY_INIT(fly_compile_options), .cache = directory};
  *from_cache = false;
  if (fly_mask_compile(source, "causal.c", &options, &mask, &error)) {
    fprintf(stderr, "%s\n", error.message);
    return false;
  }
  uint64_t bits[FLYI_BLOCK];
  flyi_mask_args args = {.batch = 1, .heads = 1, .len_q = 64, .len_kv = 64};
  mask->code.tile(&args, 0, 0, 0, 0, bits);
  bool good = true;
  for (int r = 0; r < FLYI_BLOCK; r++) good = good && bits[r] == (r == 63 ? UINT64_MAX : ((uint64_t)2 << r) - 1);
  *from_cache = fly_mask_get_info(mask)->from_cache;
  fly_mask_release(&mask);
  return good;
}

#define COMPILES(WANTED)                                                                                               \
  do {                                                                                                                 \
    bool from_cache;                                                                                                   \
    ck_assert(compile_works(&from_cache));                                                                             \
    ck_assert_int_eq(from_cache, WANTED);                                                                              \
  } while (0)

static void only_entry(char path[600]) {
  DIR *at = opendir(directory);
  path[0] = 0;
  for (struct dirent *e; (e = readdir(at));)
    if (e->d_name[0] != '.') snprintf(path, 600, "%s/%s", directory, e->d_name);
  closedir(at);
  ck_assert_int_eq(entries(directory), 1);
}

static void overwrite(const char *path, long at, const void *data, size_t size) {
  int file = open(path, O_WRONLY);
  ck_assert_int_ge(file, 0);
  ck_assert_int_eq(pwrite(file, data, size, at), (ssize_t)size);
  close(file);
}

START_TEST(a_damaged_entry_is_rebuilt_and_replaced) {
  char path[600];
  struct stat info;
  COMPILES(false);
  COMPILES(true);
  only_entry(path);
  ck_assert_int_eq(stat(path, &info), 0);
  const long places[] = {0, 8, 20, 40, 70, info.st_size / 2, info.st_size - 1};
  for (int i = 0; i < 7; i++) {
    overwrite(path, places[i], "\xa5", 1);
    COMPILES(false);
    COMPILES(true);
  }
  const long sizes[] = {0, 1, 63, 200, info.st_size - 1};
  for (int i = 0; i < 5; i++) {
    ck_assert_int_eq(truncate(path, sizes[i]), 0);
    COMPILES(false);
    COMPILES(true);
  }
  overwrite(path, info.st_size, "more", 4);
  COMPILES(false);
  COMPILES(true);
  only_entry(path);
}
END_TEST

/* A good image of another mask, under this one's key. */
START_TEST(an_entry_of_another_mask_is_rebuilt) {
  fly_error error = {0};
  char path[600], other[600] = "";
  fly_mask *mask;
  const fly_compile_options options = {FLY_INIT(fly_compile_options), .cache = directory};
  COMPILES(false);
  only_entry(path);
  ck_fly_ok(fly_mask_compile("#include <flymask/mask.h>\nbool mask(int b, int h, int q, int kv) { return kv >= q; }\n",
                             "causal.c", &options, &mask, &error),
            error);
  fly_mask_release(&mask);
  DIR *at = opendir(directory);
  for (struct dirent *e; (e = readdir(at));)
    if (e->d_name[0] != '.' && !strstr(path, e->d_name)) snprintf(other, sizeof other, "%s/%s", directory, e->d_name);
  closedir(at);
  ck_assert_int_eq(rename(other, path), 0);
  COMPILES(false);
  COMPILES(true);
}
END_TEST

START_TEST(processes_may_race) {
  enum { PROCESSES = 4 };
  pid_t children[PROCESSES];
  for (int i = 0; i < PROCESSES; i++) {
    if ((children[i] = fork()) != 0) continue;
    bool from_cache, good = true;
    for (int round = 0; round < 3; round++) {
      good = compile_works(&from_cache) && good;
      remove_below(round == 0 && i == 0 ? directory : "/nonexistent");
    }
    _exit(!good);
  }
  for (int i = 0; i < PROCESSES; i++) {
    int status;
    ck_assert_int_eq(waitpid(children[i], &status, 0), children[i]);
    ck_assert_int_eq(status, 0);
  }
  COMPILES(entries(directory) == 1);
  char path[600];
  only_entry(path);
}
END_TEST

static bool compiles(bool wanted) {
  bool from_cache;
  return compile_works(&from_cache) && from_cache == wanted;
}

static bool compile_without_permissions(void) {
  if (geteuid() == 0) { /* whom permissions do not stop */
    if (chown(directory, 65534, 65534) || setgid(65534) || setuid(65534)) return false;
  }
  chmod(directory, 0500);
  bool good = compiles(false) && compiles(false);
  chmod(directory, 0700);
  good = good && compiles(false);
  chmod(directory, 0500);
  good = good && compiles(true);
  chmod(directory, 0000);
  good = good && compiles(false);
  chmod(directory, 0700);
  return good;
}

START_TEST(a_directory_that_cannot_be_written_costs_compilations_only) {
  ck_assert(in_child(compile_without_permissions));
  ck_assert_int_eq(entries(directory), 1);
}
END_TEST

START_TEST(no_directory_at_all_costs_compilations_only) {
  strcpy(directory + strlen(directory), "/file");
  int file = open(directory, O_WRONLY | O_CREAT, 0600);
  close(file);
  COMPILES(false);
  COMPILES(false);
  ck_assert_int_eq(unlink(directory), 0);
  directory[strlen(directory) - 5] = 0;
}
END_TEST

static Suite *suite(void) {
  Suite *s = suite_create("cache");
  TCase *files = tcase_create("files"), *masks = tcase_create("masks");
  tcase_add_checked_fixture(files, setup, teardown);
  tcase_add_test(files, an_entry_is_read_as_it_was_written);
  tcase_add_test(files, missing_directories_are_made_for_the_user_alone);
  tcase_add_test(files, the_default_directory_is_the_users);
  tcase_add_test(files, a_directory_that_others_may_write_is_not_used);
  tcase_add_test(files, foreign_things_in_the_place_of_an_entry_are_a_miss);
  tcase_add_test(files, a_full_disk_leaves_no_entry_and_does_not_end_the_process);
  tcase_add_test(files, what_killed_writers_left_is_removed);
  tcase_add_test(files, a_reader_never_sees_half_an_entry);
  suite_add_tcase(s, files);
  tcase_add_checked_fixture(masks, setup, teardown);
  tcase_add_test(masks, a_damaged_entry_is_rebuilt_and_replaced);
  tcase_add_test(masks, an_entry_of_another_mask_is_rebuilt);
  tcase_add_test(masks, processes_may_race);
  tcase_add_test(masks, a_directory_that_cannot_be_written_costs_compilations_only);
  tcase_add_test(masks, no_directory_at_all_costs_compilations_only);
  suite_add_tcase(s, masks);
  return s;
}

FLY_TEST_MAIN(suite)
