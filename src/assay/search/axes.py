"""Islands along the axes of kernels: how many launches, how a row is kept, in which language.

Never along the length of the code. What does not show in the source is not seen.
"""

from __future__ import annotations

import re

from assay.candidates import candidate_from_source
from assay.records import UserError
from assay.search.protocol import Member

_LAUNCHES = re.compile(
    r"\w\[[^\]\n]*\]\(|<<<|^\s*_LIBRARY\.\w+\(|//\s*assay:\s*(?:launch|call)", re.MULTILINE
)
_SHARED = re.compile(r"__shared__|allocate_shared_memory|cp\.async|make_tensor_descriptor")
_LOOPED = re.compile(r"for \w+ in (?:tl\.)?range\(|for ?\(")


def island(member: Member) -> str:
    """A short word for the kind of kernel it is."""
    source = member.draft.source
    try:
        language = candidate_from_source(source, member.draft.name, member.draft.suffix).language
    except UserError:
        language = "none"
    launches = min(len(_LAUNCHES.findall(source)), 4)
    memory = "shared" if _SHARED.search(source) else ("looped" if _LOOPED.search(source) else "registers")
    return f"{language}/{memory}/{launches}"
