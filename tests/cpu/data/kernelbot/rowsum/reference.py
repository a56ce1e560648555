import torch
import utils
from task import input_t, output_t


def generate_input(rows: int, cols: int, masked: bool, seed: int, scales=(1,)) -> input_t:
    generator = torch.Generator(device="cuda")
    generator.manual_seed(seed)
    x = torch.randn(rows, cols, device="cuda", generator=generator) * scales[0]
    if masked:
        mask = torch.rand(rows, cols, device="cuda", generator=generator) < 0.5
    else:
        mask = torch.ones(rows, cols, device="cuda", dtype=torch.bool)
    torch.cuda.synchronize()
    return x.contiguous(), mask


def ref_kernel(data: input_t) -> output_t:
    x, mask = data
    zeros = torch.zeros(x.shape, device="cuda")
    return torch.where(mask, x, zeros).sum(dim=1)


def check_implementation(data: input_t, output: output_t):
    from utils import verbose_equal as compare  # late imports must work as well

    assert compare is utils.verbose_equal
    reasons = compare(output, ref_kernel(data))
    return len(reasons) == 0, " ".join(reasons)
