import torch


def verbose_equal(received, expected, tolerance=1e-4):
    if received.shape != expected.shape:
        return [f"shape {tuple(received.shape)} is not {tuple(expected.shape)}"]
    if not torch.allclose(received, expected, atol=tolerance, rtol=tolerance):
        return ["values differ"]
    return []
