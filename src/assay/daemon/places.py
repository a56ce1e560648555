"""Where a daemon's socket lies, and who may be on the other end of it.

Problem code runs in the daemon, so whoever may connect may run code as its user: the folder is that user's
alone, the socket has mode 0600, and both sides ask the kernel who the other one is. A process in another
mount or pid namespace is turned away too: its paths mean other files, and confined candidates are such
processes (their seccomp filter denies `socket` already; this is the second lock).

Not covered: root, which can do as it likes, and a candidate that got out of every layer of the sandbox.
"""

from __future__ import annotations

import os
import re
import socket
import stat
import struct
from pathlib import Path

import assay
from assay.records.codec import digest
from assay.records.errors import UserError

_CREDENTIALS = struct.Struct("3i")
_DEVICE = re.compile(r"cpu|cuda:\d{1,4}")
_NAMESPACES = ("mnt", "pid")
_GPU_FILES = ("/dev/nvidiactl", "/dev/nvidia0", "/dev/dxg")


def default_socket(device: str) -> Path | None:
    """Where the daemon for a device listens unless told otherwise; None for a name that is no device."""
    if not _DEVICE.fullmatch(device):
        return None
    return default_folder() / f"judge-{device.replace(':', '-')}.sock"


def default_folder() -> Path:
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    return Path(runtime, "assay") if runtime else Path(f"/tmp/assay-{os.geteuid()}")


def likely_devices(name: str | None) -> tuple[str, ...]:
    """The devices a judge in this process would take, best first, found out without torch.

    Unnamed, that is the GPU if there is one. A daemon for the CPU is no answer on a machine with a GPU: the
    verdict would be on another device than without the daemon.
    """
    if name is not None:
        return ("cuda:0" if name == "cuda" else name,)
    hidden = os.environ.get("CUDA_VISIBLE_DEVICES", "0").strip() in ("", "-1")
    has_gpu = not hidden and any(os.path.exists(path) for path in _GPU_FILES)
    return ("cuda:0",) if has_gpu else ("cuda:0", "cpu")


def source_stamp() -> str:
    """Which source this process runs: where the package lies, and when its files were written.

    A daemon whose source was edited under it must not answer: children it starts would run the new files. Not
    by contents, since another installation of the same text may come with another torch.
    """
    root = Path(assay.__file__).parent
    parts = [str(root)]
    for path in sorted(root.rglob("*.py")):
        found = path.stat()
        parts.append(f"{path}:{found.st_size}:{found.st_mtime_ns}")
    return digest(*parts)[:16]


def make_private_folder(folder: Path) -> None:
    """A folder for the socket that is ours alone, or a UserError."""
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        found = folder.lstat()
    except OSError as error:
        raise UserError(f"cannot make {folder}: {error.strerror}; name a place with --socket") from error
    ours = stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid()
    if not ours or found.st_mode & 0o077:
        raise UserError(
            f"{folder} must be a folder of yours that nobody else may enter: remove it or chmod 700 it"
        )


def peer(stream: socket.socket) -> tuple[int, int]:
    """Process and user at the other end, as the kernel knows them."""
    data = stream.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    pid, uid, _gid = _CREDENTIALS.unpack(data)
    return pid, uid


def objection_to_client(stream: socket.socket) -> str:
    """Why the client at the other end is not served; empty if it is."""
    pid, uid = peer(stream)
    if uid != os.geteuid():
        return f"this daemon serves user {os.geteuid()} alone, you are user {uid}: start one of your own"
    for name in _NAMESPACES:
        own = _namespace("self", name)
        if own is not None and _namespace(str(pid), name) != own:
            return f"you are in another {name} namespace, where paths may mean other files: use --no-daemon"
    return ""


def _namespace(pid: str, name: str) -> str | None:
    try:
        return os.readlink(f"/proc/{pid}/ns/{name}")
    except OSError:
        return None
