# SPDX-License-Identifier: Apache-2.0
"""Local files: only regular files are read, and files are written atomically."""

import contextlib
import errno
import io
import os
import secrets
import stat
from collections.abc import Iterator
from typing import Any, BinaryIO

Path = str | bytes | os.PathLike[Any]

NOT_REGULAR = "it is not a regular file"
# Of os.link where the file system has no hard links.
_NO_LINKS = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK)


def open_regular(path: Path, *, dir_fd: int | None = None, follow: bool = True) -> BinaryIO:
    """Open a file for reading in binary.

    Args:
        path: The file.
        dir_fd: The folder at which a relative path starts.
        follow: Follow a symbolic link.

    Raises:
        OSError: it cannot be opened, or it is a folder, a device, a pipe or a socket, which may never end or never answer.
    """
    # Without O_NONBLOCK opening a pipe waits for its writer; for files it makes no difference.
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | (0 if follow else os.O_NOFOLLOW)
    descriptor = os.open(path, flags, dir_fd=dir_fd)
    # Checked after opening, and on the descriptor: between a check of the path and its opening another process could replace the file.
    try:
        check_status(os.fstat(descriptor), path)
        return open(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def check_regular(path: Path) -> None:
    """Raise OSError unless a path that a library is going to open leads to a regular file."""
    check_status(os.stat(path), path)


def check_status(status: os.stat_result, path: Path) -> None:
    """Raise OSError unless the status of an open file is that of a regular one."""
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), os.fspath(path))
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EINVAL, NOT_REGULAR, os.fspath(path))


def read_regular(path: Path, *, dir_fd: int | None = None, follow: bool = True) -> bytes:
    """Return the contents of a file, see :func:`open_regular`."""
    with open_regular(path, dir_fd=dir_fd, follow=follow) as file:
        return file.read()


@contextlib.contextmanager
def whole_file(path: Path, *, dir_fd: int | None = None, unfinished_dir_fd: int | None = None, replace: bool = True) -> Iterator[BinaryIO]:
    """Open a file for writing in binary. It appears under its name when it is complete and on disk; an error leaves the previous file unchanged.

    It is written under a random name, which must not exist, and renamed: a link under either name is never followed.

    Args:
        path: The file.
        dir_fd: The folder at which a relative path starts.
        unfinished_dir_fd: The folder of the unfinished file, in the same file system; by default that of the file.
        replace: Replace a file that exists; otherwise raise FileExistsError at the end.

    Raises:
        OSError: it cannot be written, or there is a folder, a device or a pipe under its name; the error has its path.
    """
    name = os.fsdecode(path)
    with contextlib.suppress(FileNotFoundError):
        # A pipe or a device of this name must not be replaced by a file.
        check_status(os.stat(path, dir_fd=dir_fd), path)
    # Hidden, so a listing of data files does not show it, and random, so two writers do not meet.
    unfinished = f".{secrets.token_hex(8)}.part"
    if unfinished_dir_fd is None:
        unfinished, unfinished_dir_fd = os.path.join(os.path.dirname(name), unfinished), dir_fd
    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with open(os.open(unfinished, flags, 0o666, dir_fd=unfinished_dir_fd), "wb") as file:
            yield file
            file.flush()
            # Before the renaming: otherwise a crash could leave an empty file under the final name.
            os.fsync(file.fileno())
        if replace or not _link_new(unfinished, name, unfinished_dir_fd, dir_fd):
            os.replace(unfinished, name, src_dir_fd=unfinished_dir_fd, dst_dir_fd=dir_fd)
        _sync_folder(os.path.dirname(name), dir_fd)
    except OSError as error:
        if error.errno is None or error.filename not in (None, unfinished):
            raise
        raise OSError(error.errno, error.strerror, name) from None  # the error of a full disk has no file name
    finally:
        # After a renaming there is nothing left under this name.
        with contextlib.suppress(OSError):
            os.unlink(unfinished, dir_fd=unfinished_dir_fd)


def write_whole(path: Path, content: bytes | str, **options: Any) -> None:
    """Write a file, text in UTF-8, see :func:`whole_file`."""
    with whole_file(path, **options) as file:
        file.write(content.encode() if isinstance(content, str) else content)


def _link_new(unfinished: str, name: str, unfinished_dir_fd: int | None, dir_fd: int | None) -> bool:
    """Give a file its name unless it is taken; return False if the file system has no links and the name is free."""
    try:
        # Unlike a renaming, a link fails if the name is taken.
        os.link(unfinished, name, src_dir_fd=unfinished_dir_fd, dst_dir_fd=dir_fd, follow_symlinks=False)
    except OSError as error:
        if error.errno not in _NO_LINKS or _exists(name, dir_fd):
            raise
        return False
    return True


def _exists(name: str, dir_fd: int | None) -> bool:
    try:
        os.lstat(name, dir_fd=dir_fd)
    except FileNotFoundError:
        return False
    return True


def _sync_folder(folder: str, dir_fd: int | None) -> None:
    # A rename is durable when its folder is synchronized. File systems without this operation report an error, which is ignored.
    with contextlib.suppress(OSError):
        descriptor = os.open(folder or ".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=dir_fd)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def text_of(content: bytes) -> bytes:
    """Return a text in UTF-8 without a byte order mark; UTF-16, which Windows writes, is converted, and other bytes are left unchanged.

    >>> text_of("\\ufeffcat".encode()), text_of("cat".encode("utf-16"))
    (b'cat', b'cat')
    """
    if content.startswith((b"\xff\xfe", b"\xfe\xff")):
        with contextlib.suppress(UnicodeError):
            return content.decode("utf-16").encode()
    return content.removeprefix(b"\xef\xbb\xbf")


def open_text(content: bytes) -> io.BytesIO:
    """Open a text as a file, see :func:`text_of`."""
    return io.BytesIO(text_of(content))
