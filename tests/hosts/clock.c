/* A clock that is AHEAD_S seconds off, for a program that is started with this library in LD_PRELOAD: the time of day,
   and the times of files. Time-outs are measured by the monotonic clock, which goes on as it is. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <time.h>

static long ahead_s(void) {
    const char *text = getenv("AHEAD_S");
    return text ? atol(text) : 0;
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real) real = dlsym(RTLD_NEXT, "clock_gettime");
    int failed = real(clock, now);
    if (!failed && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) now->tv_sec += ahead_s();
    return failed;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    struct timespec exact;
    (void)zone;
    int failed = clock_gettime(CLOCK_REALTIME, &exact);
    now->tv_sec = exact.tv_sec;
    now->tv_usec = exact.tv_nsec / 1000;
    return failed;
}

time_t time(time_t *result) {
    struct timespec exact;
    clock_gettime(CLOCK_REALTIME, &exact);
    if (result) *result = exact.tv_sec;
    return exact.tv_sec;
}

static int shifted(int failed, struct stat *found) {
    if (!failed) {
        found->st_atim.tv_sec += ahead_s();
        found->st_mtim.tv_sec += ahead_s();
        found->st_ctim.tv_sec += ahead_s();
    }
    return failed;
}

#define SHIFTED(name, parameters, arguments)                                     \
    int name parameters {                                                        \
        static int (*real) parameters;                                           \
        if (!real) real = (int(*) parameters)dlsym(RTLD_NEXT, #name);            \
        return shifted(real arguments, found);                                   \
    }

SHIFTED(stat, (const char *restrict path, struct stat *restrict found), (path, found))
SHIFTED(lstat, (const char *restrict path, struct stat *restrict found), (path, found))
SHIFTED(fstat, (int fd, struct stat *found), (fd, found))
SHIFTED(fstatat, (int fd, const char *restrict path, struct stat *restrict found, int flags), (fd, path, found, flags))
