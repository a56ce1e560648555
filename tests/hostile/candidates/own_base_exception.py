"""Raises a BaseException of its own during construction, hoping to unwind into the zygote's loop."""
# expect: build_failed crashed

import torch


class Away(BaseException):
    pass


class ModelNew(torch.nn.Module):
    def __init__(self):
        raise Away
