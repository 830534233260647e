/* process.c: runs a child process with limits and without a shell.
 *
 * Input: what to run, and byte strings that the child sees as files (memfds, so nothing is written to a disk). Output:
 * what it wrote. The host may have many threads and much memory: posix_spawn neither copies its page tables nor runs
 * its code in the child; the limits are set from outside, by prlimit. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "process.h"

/* Our descriptors stay above those that the child will have, so that placing one never overwrites another. */
enum { LOWEST_FD = 16, CHILD_FDS = FLYI_CHILD_FD + FLYI_CHILD_FILES };

static int64_t now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

static void close_fd(int *fd) {
  if (*fd >= 0) close(*fd);
  *fd = -1;
}

/* Moves a fresh descriptor out of the child's range. */
static int raise_fd(int fd) {
  if (fd < 0 || fd >= LOWEST_FD) return fd;
  int raised = fcntl(fd, F_DUPFD_CLOEXEC, LOWEST_FD), saved = errno;
  close(fd);
  errno = saved;
  return raised;
}

static int file_of(flyi_section contents) {
  int fd = raise_fd(memfd_create("flymask", MFD_CLOEXEC));
  if (fd < 0 || (flyi_write_file(fd, contents.data, contents.size) && lseek(fd, 0, SEEK_SET) == 0)) return fd;
  int saved = errno;
  close(fd);
  errno = saved;
  return -1;
}

/* read_end gets what the child writes to write_end. */
static bool make_pipe(int *read_end, int *write_end) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC)) return false;
  *read_end = raise_fd(ends[0]);
  *write_end = raise_fd(ends[1]);
  return *read_end >= 0 && *write_end >= 0 && fcntl(*read_end, F_SETFL, O_NONBLOCK) == 0;
}

/* Starts the child with child_fds[i] as its descriptor i, default signal handling and a process group of its own, so
 * that it can be killed with whatever it started. 0 or an errno. */
static int spawn(const flyi_child *child, const int child_fds[CHILD_FDS], int count, pid_t *pid) {
  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;
  sigset_t none, all;
  sigemptyset(&none);
  sigfillset(&all);
  int failed = posix_spawn_file_actions_init(&actions);
  if (failed) return failed;
  if ((failed = posix_spawnattr_init(&attributes))) goto done_actions;
  for (int i = 0; i < count && !failed; i++) failed = posix_spawn_file_actions_adddup2(&actions, child_fds[i], i);
  if (!failed) failed = posix_spawn_file_actions_addclosefrom_np(&actions, count);
  if (!failed) failed = posix_spawnattr_setsigmask(&attributes, &none);
  if (!failed) failed = posix_spawnattr_setsigdefault(&attributes, &all);
  if (!failed) failed = posix_spawnattr_setpgroup(&attributes, 0);
  if (!failed)
    failed = posix_spawnattr_setflags(&attributes,
                                      POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP);
  if (!failed) failed = posix_spawn(pid, child->path, &actions, &attributes, child->arguments, child->environment);
  posix_spawnattr_destroy(&attributes);
done_actions:
  posix_spawn_file_actions_destroy(&actions);
  return failed;
}

/* The second line of defence, should this process itself be stopped and its clock not run. */
static void limit(pid_t pid, const flyi_child *child) {
  rlim_t seconds = (rlim_t)child->seconds + 1;
  prlimit(pid, RLIMIT_CPU, &(struct rlimit){seconds, seconds + 1}, NULL);
  prlimit(pid, RLIMIT_AS, &(struct rlimit){child->memory, child->memory}, NULL);
  prlimit(pid, RLIMIT_CORE, &(struct rlimit){0, 0}, NULL);
  prlimit(pid, RLIMIT_FSIZE, &(struct rlimit){child->output, child->output}, NULL);
}

/* Takes what is there. 1: the pipe is empty for now, 0: at its end, -1: more than `most`, -2: no memory. */
static int drain(int fd, flyi_bytes *to, size_t most) {
  char block[16384];
  for (;;) {
    ssize_t n = read(fd, block, sizeof block);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN) return 1;
    if (n <= 0) return 0;
    if (to->size + (size_t)n > most) return -1;
    if (!flyi_bytes_add(to, block, (size_t)n)) return -2;
  }
}

/* Reads both outputs until the child has closed them. */
static int collect(int fds[2], flyi_bytes *texts[2], size_t most, int64_t deadline, flyi_end *end) {
  *end = FLYI_END_EXIT;
  while (fds[0] >= 0 || fds[1] >= 0) {
    int64_t left = deadline - now_ns();
    if (left <= 0) return *end = FLYI_END_TIME, 0;
    int wait_ms = left < INT64_C(60000000000) ? (int)(left / 1000000) + 1 : 60000;
    struct pollfd polled[2] = {{.fd = fds[0], .events = POLLIN}, {.fd = fds[1], .events = POLLIN}};
    if (poll(polled, 2, wait_ms) < 0 && errno != EINTR) return -1;
    for (int i = 0; i < 2; i++) {
      if (fds[i] < 0 || !polled[i].revents) continue;
      int state = drain(fds[i], texts[i], most);
      if (state == -2) return -2;
      if (state == -1) return *end = FLYI_END_OUTPUT, 0;
      if (state == 0) close_fd(&fds[i]);
    }
  }
  return 0;
}

/* Waits for the child, which is expected to end soon; kills it and its group at the deadline. */
static void reap(pid_t pid, int64_t deadline, flyi_end *end, int *code) {
  int status = 0;
  bool killed = false;
  for (;;) {
    if (!killed && (*end != FLYI_END_EXIT || now_ns() >= deadline)) {
      if (*end == FLYI_END_EXIT) *end = FLYI_END_TIME;
      kill(-pid, SIGKILL);
      kill(pid, SIGKILL); /* before its group exists, that is */
      killed = true;
    }
    pid_t got = waitpid(pid, &status, killed ? 0 : WNOHANG);
    if (got == pid) break;
    if (got < 0 && errno != EINTR) { /* the host ignores SIGCHLD, or waits for any child */
      *code = -1;
      return;
    }
    if (got == 0) nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
  }
  if (*end != FLYI_END_EXIT) return;
  if (WIFSIGNALED(status)) *end = WTERMSIG(status) == SIGXCPU ? FLYI_END_TIME : FLYI_END_SIGNAL;
  *code = WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status);
}

fly_status flyi_child_run(const flyi_child *child, flyi_bytes *output, flyi_bytes *errors, flyi_end *end, int *code,
                          fly_error *error) {
  int fds[CHILD_FDS], count = FLYI_CHILD_FD + child->file_count, reads[2] = {-1, -1};
  int64_t deadline = now_ns() + (int64_t)(child->seconds * 1e9);
  fly_status status = FLY_OK;
  pid_t pid = -1;
  for (int i = 0; i < CHILD_FDS; i++) fds[i] = -1;
  *code = 0;

  bool ready = (fds[0] = file_of(child->input)) >= 0;
  for (int i = 0; i < child->file_count; i++) ready = ready && (fds[FLYI_CHILD_FD + i] = file_of(child->files[i])) >= 0;
  ready = ready && make_pipe(&reads[0], &fds[1]) && make_pipe(&reads[1], &fds[2]);
  int failed = ready ? spawn(child, fds, count, &pid) : errno;
  if (failed) {
    status = flyi_fail(error, FLY_ERROR_TOOL, "cannot run %s: %s%s", child->path, strerrordesc_np(failed),
                       failed == EFBIG ? " (what it reads is above this process's limit, ulimit -f)" : "");
    goto done;
  }
  limit(pid, child);
  close_fd(&fds[1]);
  close_fd(&fds[2]);
  int collected = collect(reads, (flyi_bytes *[]){output, errors}, child->output, deadline, end);
  if (collected < 0) *end = FLYI_END_TIME; /* whatever it does, it has to end */
  reap(pid, deadline, end, code);
  if (collected == -1) status = flyi_fail(error, FLY_ERROR_TOOL, "cannot read the output of %s", child->path);
  if (collected == -2) status = flyi_no_memory(error);
  if (!status && (!flyi_bytes_add(output, "", 1) || !flyi_bytes_add(errors, "", 1))) status = flyi_no_memory(error);
  if (!status) output->size--, errors->size--;

done:
  for (int i = 0; i < CHILD_FDS; i++) close_fd(&fds[i]);
  close_fd(&reads[0]);
  close_fd(&reads[1]);
  return status;
}
