"""A library put before libc's: it counts the fsyncs of files by name, and lets those fail that a test names.

This is how a disk that lost a write looks to SQLite itself; without a C compiler there is no shim.
"""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

_SOURCE = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int ends_with(const char *text, const char *end) {
    size_t n = strlen(text), m = strlen(end);
    return n >= m && !strcmp(text + n - m, end);
}

/* Notes the synced file in $SYNC_SEEN; 1 when $SYNC_FAILS holds the end of its name. */
static int refused(int fd) {
    char link[64], name[PATH_MAX + 2], fails[256];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, name, PATH_MAX);
    if (length < 0) return 0;
    name[length] = 0;
    const char *seen = getenv("SYNC_SEEN"), *from = getenv("SYNC_FAILS");
    int refuse = 0, file;
    if (from && (file = open(from, O_RDONLY | O_CLOEXEC)) >= 0) {
        ssize_t got = read(file, fails, sizeof fails - 1);
        close(file);
        if (got > 0) { fails[got] = 0; refuse = ends_with(name, fails); }
    }
    if (seen && (file = open(seen, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600)) >= 0) {
        name[length] = '\n';
        if (write(file, name, length + 1) < 0) {}
        close(file);
    }
    return refuse;
}

int fsync(int fd) {
    int (*real)(int) = dlsym(RTLD_NEXT, "fsync");
    if (refused(fd)) { errno = EIO; return -1; }
    return real(fd);
}

int fdatasync(int fd) {
    int (*real)(int) = dlsym(RTLD_NEXT, "fdatasync");
    if (refused(fd)) { errno = EIO; return -1; }
    return real(fd);
}
"""


@dataclass(frozen=True, slots=True)
class SyncShim:
    """A built shim and the two files through which it is spoken to."""

    library: Path
    seen: Path
    fails: Path

    @property
    def environ(self) -> dict[str, str]:
        """What a process needs to be started with."""
        return {"LD_PRELOAD": str(self.library), "SYNC_SEEN": str(self.seen), "SYNC_FAILS": str(self.fails)}

    def synced(self, ending: str) -> int:
        """How many syncs there were of files whose name ends so."""
        lines = self.seen.read_text().splitlines() if self.seen.exists() else []
        return sum(line.endswith(ending) for line in lines)


def find_compiler() -> str | None:
    """A C compiler, if there is one."""
    return shutil.which("gcc") or shutil.which("cc")


def build_shim(folder: Path) -> SyncShim:
    """Compile the shim into a folder; skips the test without a compiler."""
    compiler = find_compiler()
    if compiler is None:
        pytest.skip("no C compiler: real fsyncs cannot be counted or made to fail")
    source, library = folder / "shim.c", folder / "shim.so"
    source.write_text(_SOURCE)
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", library, source, "-ldl"], check=True)
    return SyncShim(library, folder / "seen", folder / "fails")
