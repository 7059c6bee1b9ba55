"""Is a file of a change text that a reader (and the policy's own search) can see into?

Compiled code, archives and pickles run when they are loaded and show nothing to whoever reads the
diff, so a change may not bring them: ship the source, which the engine compiles into its cache.
One binary format may come in, because a learned drafter's weights need it and because it holds
numbers only: safetensors.
"""

from __future__ import annotations

import json

_SIGNATURES: tuple[tuple[bytes, str], ...] = (
    (b"\x7fELF", "compiled code (ELF)"),
    (b"MZ", "compiled code (PE)"),
    (b"\xfe\xed\xfa", "compiled code (Mach-O)"),
    (b"\xcf\xfa\xed\xfe", "compiled code (Mach-O)"),
    (b"\xca\xfe\xba\xbe", "compiled code (Mach-O or Java)"),
    (b"BC\xc0\xde", "compiled code (LLVM)"),
    (b"\x50\xed\x55\xba", "compiled code (CUDA)"),
    (b"!<arch>\n", "an archive (ar)"),
    (b"PK\x03\x04", "an archive (zip: wheel, .pt, .npz)"),
    (b"\x1f\x8b", "an archive (gzip)"),
    (b"\xfd7zXZ", "an archive (xz)"),
    (b"\x28\xb5\x2f\xfd", "an archive (zstd)"),
)
_PICKLE_PROTOCOLS = (b"\x02", b"\x03", b"\x04", b"\x05")


def opaque_kind(path: str, content: bytes) -> str | None:
    """What `content` is where it is neither UTF-8 text nor safetensors data, else None."""
    if _is_text(content) and not content.startswith(b"!<arch>\n"):
        return None
    if path.endswith(".safetensors") and _is_safetensors(content):
        return None
    for signature, kind in _SIGNATURES:
        if content.startswith(signature):
            return kind
    if content[2:4] == b"\r\n":
        return "Python byte code"
    if content[:1] == b"\x80" and content[1:2] in _PICKLE_PROTOCOLS and content.endswith(b"."):
        return "a pickle"
    return "binary data"


def _is_text(content: bytes) -> bool:
    if b"\0" in content:
        return False
    try:
        content.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def _is_safetensors(content: bytes) -> bool:
    """Header length (8 bytes, little-endian), JSON header, and tensors that fill the rest exactly
    (https://github.com/huggingface/safetensors, "Format")."""
    size = int.from_bytes(content[:8], "little")
    if len(content) < 8 or size > len(content) - 8:
        return False
    try:
        header = json.loads(content[8 : 8 + size])
        tensors = [entry for name, entry in header.items() if name != "__metadata__"]
        spans = sorted(tuple(map(int, entry["data_offsets"])) for entry in tensors)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return False
    end = 0
    for start, stop in (span for span in spans if len(span) == 2):
        if start != end or stop < start:
            return False
        end = stop
    return bool(spans) and end == len(content) - 8 - size
