"""Language models: asking them, what they are asked, and what is taken from their answers."""

from assay.llm.answers import Answer, Settings, Spoken, read_settings
from assay.llm.clients import complete
from assay.llm.extraction import Extracted, extract
from assay.llm.feedback import feedback
from assay.llm.prompts import LANGUAGES, Prompts

__all__ = [
    "LANGUAGES",
    "Answer",
    "Extracted",
    "Prompts",
    "Settings",
    "Spoken",
    "complete",
    "extract",
    "feedback",
    "read_settings",
]
