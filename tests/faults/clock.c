/* Preloaded into a broker: what Python takes for the time of day is so many seconds off as a file says.

   Only calls from Python itself are answered so. Libraries that hand the time of day to the kernel, as a deadline, would
   otherwise wait for hours, which no real clock that jumps makes them do. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <link.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static volatile int64_t *ahead_s;
static int (*real_clock_gettime)(clockid_t, struct timespec *);
static uintptr_t python_start, python_end;

static int look(struct dl_phdr_info *object, size_t size, void *python) {
    (void)size;
    uintptr_t start = UINTPTR_MAX, end = 0;
    for (int i = 0; i < object->dlpi_phnum; i++) {
        if (object->dlpi_phdr[i].p_type != PT_LOAD) continue;
        uintptr_t from = object->dlpi_addr + object->dlpi_phdr[i].p_vaddr;
        uintptr_t to = from + object->dlpi_phdr[i].p_memsz;
        if (from < start) start = from;
        if (to > end) end = to;
    }
    if ((uintptr_t)python < start || (uintptr_t)python >= end) return 0;
    python_start = start;
    python_end = end;
    return 1;
}

__attribute__((constructor)) static void begin(void) {
    *(void **)&real_clock_gettime = dlsym(RTLD_NEXT, "clock_gettime");
    const char *path = getenv("TEST_CLOCK_FILE");
    void *python = dlsym(RTLD_DEFAULT, "Py_Initialize");
    int file = path == NULL ? -1 : open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0) return;
    void *page = mmap(NULL, sizeof *ahead_s, PROT_READ, MAP_SHARED, file, 0);
    close(file);
    if (python == NULL || page == MAP_FAILED) return;
    dl_iterate_phdr(look, python);
    ahead_s = page;
}

int clock_gettime(clockid_t clock, struct timespec *time) {
    int done = real_clock_gettime == NULL ? syscall(SYS_clock_gettime, clock, time) : real_clock_gettime(clock, time);
    uintptr_t caller = (uintptr_t)__builtin_return_address(0);
    if (!done && clock == CLOCK_REALTIME && ahead_s != NULL && caller >= python_start && caller < python_end)
        time->tv_sec += *ahead_s;
    return done;
}
