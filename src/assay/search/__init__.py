"""From a PyTorch module to a kernel worth shipping: strategies ask, proposers draft, the judge decides."""

from assay.search.budget import Limits
from assay.search.compiler import CompilerProposer
from assay.search.driver import Pace, Search, Status
from assay.search.earlier import EarlierProposer
from assay.search.finish import Ending, Finish
from assay.search.model_proposer import ModelProposer, proposer_names
from assay.search.prompts import read_prompts
from assay.search.protocol import Proposer, View
from assay.search.queue_proposer import QueueProposer
from assay.search.replay import read_recording
from assay.search.strategies import STRATEGIES

__all__ = [
    "STRATEGIES",
    "CompilerProposer",
    "EarlierProposer",
    "Ending",
    "Finish",
    "Limits",
    "ModelProposer",
    "Pace",
    "Proposer",
    "QueueProposer",
    "Search",
    "Status",
    "View",
    "proposer_names",
    "read_prompts",
    "read_recording",
]
