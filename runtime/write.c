/* write.c: bytes to a file, to the end or an error. A limit on the size of files (RLIMIT_FSIZE) counts for memfds too,
 * and is an error like a full disk: it does not end the caller's process. */
#include <errno.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

#include "runtime.h"

static bool write_all(int file, const uint8_t *data, size_t size) {
  while (size) {
    ssize_t put = write(file, data, size);
    if (put < 0 && errno == EINTR) continue;
    if (put <= 0) return false;
    data += put;
    size -= (size_t)put;
  }
  return true;
}

/* Writing beyond RLIMIT_FSIZE raises SIGXFSZ on this thread: it is held back for the time of writing and, should it
 * have come, taken off. */
bool flyi_write_file(int file, const void *data, size_t size) {
  sigset_t limit, before, pending;
  sigemptyset(&limit);
  sigaddset(&limit, SIGXFSZ);
  sigpending(&pending);
  bool was_pending = sigismember(&pending, SIGXFSZ) == 1;
  if (pthread_sigmask(SIG_BLOCK, &limit, &before)) return false;
  bool good = write_all(file, data, size);
  int why = errno;
  if (!good && !was_pending) {
    const struct timespec now = {0};
    while (sigtimedwait(&limit, NULL, &now) < 0 && errno == EINTR) {}
  }
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  errno = why;
  return good;
}
