"""Kernels with one bug each, made by changing their text: what the emulator has to notice."""

from __future__ import annotations

import importlib.util
import sys
import types
from dataclasses import dataclass
from pathlib import Path

import assay.tiles

TILES = Path(assay.tiles.__file__).parent
PIPELINE, GEMM, ATTENTION = "pipeline", "kernels/gemm", "kernels/attention"
TWO_WALKS, BACKWARD = "kernels/attention_two_walks", "kernels/attention_backward"
MAMBA2 = "kernels/mamba2_hopper"


@dataclass(frozen=True)
class Bug:
    name: str
    file: str
    old: str
    new: str
    kernel: str = "both"
    """Which kernel shows it."""

    def load(self, kernel: str, folder: Path) -> types.ModuleType:
        """The kernel's module as it is with the bug, without touching the one that others use."""
        name = Path(kernel).name
        template = self._changed(PIPELINE)
        text = self._changed(kernel).replace("assay.tiles.pipeline", f"{name}_pipeline_{self._mark}")
        text = text.replace('@op("', f'@op("{self._mark}_')  # operators have one name each
        _load(f"{name}_pipeline_{self._mark}", template, folder)
        return _load(f"{name}_{self._mark}", text, folder)

    @property
    def _mark(self) -> str:
        return "".join(c if c.isalnum() else "_" for c in self.name)

    def _changed(self, file: str) -> str:
        text = (TILES / f"{file}.py").read_text()
        if file != self.file:
            return text
        if text.count(self.old) != 1:
            raise ValueError(f"{self.name}: its text occurs {text.count(self.old)} times in {file}.py")
        return text.replace(self.old, self.new)


def _load(name: str, text: str, folder: Path) -> types.ModuleType:
    path = folder / f"{name}.py"
    path.write_text(text)
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


BUGS = (
    Bug("slot read before it is full", PIPELINE, "    mbarrier.wait(full.index(slot), (i // w.stages) & 1)\n    state", "    state"),
    Bug("first slot read before it is full", PIPELINE, "        mbarrier.wait(full.index(i % w.stages), (i // w.stages) & 1)\n        state", "        state"),
    Bug("producer does not wait", PIPELINE, "            mbarrier.wait(empty.index(slot), ((i // w.stages) & 1) ^ 1)\n", ""),
    Bug("producer waits for the wrong phase", PIPELINE, "mbarrier.wait(empty.index(slot), ((i // w.stages) & 1) ^ 1)", "mbarrier.wait(empty.index(slot), (i // w.stages) & 1)"),
    Bug("consumer waits for the wrong phase", PIPELINE, "mbarrier.wait(full.index(slot), (i // w.stages) & 1)", "mbarrier.wait(full.index(slot), ((i // w.stages) & 1) ^ 1)"),
    Bug("one arrival empties a slot", PIPELINE, "mbarrier.init(empty.index(s), count=w.consumers)", "mbarrier.init(empty.index(s), count=1)"),
    Bug("slot given back too early", PIPELINE, "    if w.holds:\n        slot = (i - 1) % w.stages\n", "", GEMM),
    Bug("slot given back before its step", PIPELINE, "    state = w.step(w, g, at, part, k, state, room, slot, is_head)\n", "    mbarrier.arrive(empty.index((i - 1) % w.stages), count=1)\n    state = w.step(w, g, at, part, k, state, room, slot, is_head)\n    return state\n"),
    Bug("last slot never given back", PIPELINE, "            mbarrier.arrive(empty.index((i - 1) % w.stages), count=1)\n", "            n += 0\n"),
    Bug("last slot given back too early", PIPELINE, "        state = w.last(w, g, at, part, state, room, (i - 1) % w.stages)\n        if w.holds or w.tail:\n            mbarrier.arrive(empty.index((i - 1) % w.stages), count=1)\n", "        if w.holds or w.tail:\n            mbarrier.arrive(empty.index((i - 1) % w.stages), count=1)\n        state = w.last(w, g, at, part, state, room, (i - 1) % w.stages)\n", GEMM),
    Bug("ring not counted on", PIPELINE, "        i += 1\n        for k in range(1, heads):", "        for k in range(1, heads):"),
    Bug("barrier never initialised", PIPELINE, "        mbarrier.init(full.index(s), count=1)\n", ""),
    Bug("stores not waited for at the end", PIPELINE, "    tma.store_wait(0)\n", "", GEMM),
    Bug("tile data overwritten early", PIPELINE, "            mbarrier.wait(left.index(n % w.entries), ((n // w.entries) & 1) ^ 1)\n", "", ATTENTION),
    Bug("tile data read early", PIPELINE, "mbarrier.wait(entered.index(n % w.entries), (n // w.entries) & 1)", "n += 0", ATTENTION),
    Bug("tile never left", PIPELINE, "mbarrier.arrive(left.index(n % 2), count=1)", "n += 0", ATTENTION),
    Bug("too few bytes expected", GEMM, "2 * g[0].block_type.nbytes + g[1]", "g[0].block_type.nbytes + g[1]", GEMM),
    Bug("too many bytes expected", GEMM, "2 * g[0].block_type.nbytes + g[1]", "3 * g[0].block_type.nbytes + g[1]", GEMM),
    Bug("accumulator used in flight", GEMM, "        return warpgroup_mma_wait(0, (acc,))\n", "        return acc\n", GEMM),
    Bug("room reused while it is stored", GEMM, "        tma.store_wait(0)\n", "", GEMM),
    Bug("no fence before a store", GEMM, "        fence_async_shared()\n", "", GEMM),
    Bug("both halves of one consumer", GEMM, "room[0].index(2 * slot + part)", "room[0].index(2 * slot)", GEMM),
    Bug("bias beyond the edge", GEMM, "gl.load(g[6] + n, n < g[4], other=0.0)", "gl.load(g[6] + n)", GEMM),
    Bug("old sums not rescaled", ATTENTION, "        acc = acc * gl.expand_dims(gl.convert_layout(less, gl.SliceLayout(1, w.layout)), 1)\n", "", ATTENTION),
    Bug("values of the wrong step", ATTENTION, "(block + 1) * w.BN", "(block + 2) * w.BN", ATTENTION),
    Bug("values not announced", ATTENTION, "expect(bar, g[1].block_type.nbytes + g[2].block_type.nbytes)", "expect(bar, g[1].block_type.nbytes)", ATTENTION),
    Bug("the last values read early", PIPELINE, "            mbarrier.wait(full.index(i % w.stages), (i // w.stages) & 1)\n            i += 1\n", "            i += 1\n", ATTENTION),
    Bug("queries of the tile before", ATTENTION, "queries = room[0].index(w.consumers * at[2] + part)", "queries = room[0].index(part)", ATTENTION),
    Bug("a tile twice, another never", PIPELINE, "(2 * n + 1) * programs - 1 - t", "(2 * n + 1) * programs - t", ATTENTION),
    Bug("scores used in flight", ATTENTION, "        s = warpgroup_mma_wait(1, (s,))\n", "", ATTENTION),
    Bug("values product not waited for", ATTENTION, "        acc = warpgroup_mma_wait(0, (acc,))\n", "", ATTENTION),
    Bug("keys beyond the end seen", ATTENTION, "        seen = key < g[5]\n", "        seen = key < g[5] + 1000\n", ATTENTION),
    Bug("queries without a fence", ATTENTION, "        fence_async_shared()\n", "", ATTENTION),
    Bug("output store not waited for", ATTENTION, "        if w.entries == 2:\n            tma.store_wait(0)\n", "", ATTENTION),
    Bug("a block seen in part is not masked", ATTENTION, "return -(-self.rows // self.BN) + self.is_askew if", "return 1 if", ATTENTION),
    Bug("causal mask off by one", ATTENTION, "(key <= query + g[5] - g[4])", "(key < query + g[5] - g[4])", ATTENTION),
    Bug("gradients without the sums", TWO_WALKS, "* (dp - gl.expand_dims(delta, 0))", "* dp", TWO_WALKS),
    Bug("keys walked by the wrong head", TWO_WALKS, "return at[1] * g[9] + k % g[9],", "return at[1] + k % g[9],", TWO_WALKS),
    Bug("gradients left in flight", TWO_WALKS, "        return warpgroup_mma_wait(0, (dk, dv))\n", "        return warpgroup_mma_wait(1, (dk, dv))\n", TWO_WALKS),
    Bug("weights of keys that are not seen", TWO_WALKS, "p = gl.where(key <= gl.expand_dims(query, 0) + g[7] - g[6], p, 0.0)", "p = p + 0.0", TWO_WALKS),
    Bug("one key gradient stored twice", TWO_WALKS, "tma.async_copy_shared_to_global(g[5], corner, room[3].index(part))", "tma.async_copy_shared_to_global(g[5], corner, room[2].index(part))", TWO_WALKS),
    Bug("a slot held for two steps never given back", PIPELINE, "            mbarrier.arrive(empty.index((i - 2) % w.stages), count=1)\n", "            n += 0\n", BACKWARD),
    Bug("half of dS read before it is there", BACKWARD, "        mbarrier.wait(room[6].index(k % 2), ((k - 1) // 2) & 1)\n", "", BACKWARD),
    Bug("keys overwritten while the other reads them", BACKWARD, "            w.meet(room, more)\n", "            k += 0\n", BACKWARD),
    Bug("one place for dS", BACKWARD, "            ds, keys = room[5].index(k % 2 * 2 + half)", "            ds, keys = room[5].index(half)", BACKWARD),
    Bug("dS without a fence", BACKWARD, "        fence_async_shared()\n", "", BACKWARD),
    Bug("queries of the wrong step", BACKWARD, "room[0].index((slot + w.stages - 1) % w.stages)", "room[0].index(slot)", BACKWARD),
    Bug("gradients of the wrong step", BACKWARD, "w.queries(w, g, at, max(k - 1, 0))", "w.queries(w, g, at, k)", BACKWARD),
    Bug("dQ of the wrong step", BACKWARD, "        head, first = w.queries(w, g, at, k - 1)\n        block", "        head, first = w.queries(w, g, at, k)\n        block", BACKWARD),
    Bug("both consumers add to one half", BACKWARD, "* (w.D // 64) + part\n", "* (w.D // 64)\n", BACKWARD),
    Bug("dQ read in flight", BACKWARD, "        dq = warpgroup_mma_wait(1, (dq,))\n", "", BACKWARD),
    Bug("weights written where y is still stored from", MAMBA2, "        tma.store_wait(0)\n", "", MAMBA2),
    Bug("weights without a fence", MAMBA2, "(alike * gl.exp2(between)).to(g[0].dtype))\n        fence_async_shared()\n", "(alike * gl.exp2(between)).to(g[0].dtype))\n", MAMBA2),
    Bug("y without a fence", MAMBA2, "        fence_async_shared()\n        corner", "        corner", MAMBA2),
    Bug("y read in flight", MAMBA2, "w.write(w, g, at, part, k, warpgroup_mma_wait(1, (y,)), x, room)", "w.write(w, g, at, part, k, warpgroup_mma_wait(2, (y,)), x, room)", MAMBA2),
    Bug("a slot given back while the state grows", MAMBA2, "        return warpgroup_mma_wait(0, (state,))\n", "        return warpgroup_mma_wait(1, (state,))\n", MAMBA2),
    Bug("a slot given back while an end grows", MAMBA2, "        return warpgroup_mma_wait(0, (acc,)), left", "        return warpgroup_mma_wait(1, (acc,)), left", MAMBA2),
    Bug("sums of one head not announced", MAMBA2, "+ w.consumers * each)", "+ each)", MAMBA2),
    Bug("later keys seen", MAMBA2, "key <= query, gained", "key <= query + 1, gained", MAMBA2),
    Bug("a state that does not decay", MAMBA2, "state = state * less + ended", "state = state + ended", MAMBA2),
    Bug("an end added twice", MAMBA2, "min(before + 1, at[3] - 1)", "min(before, at[3] - 1)", MAMBA2),
    Bug("chunks of an end walked forwards", MAMBA2, "return at[3] * g[7] + w.steps(w, g, at) - 1 - k", "return at[3] * g[7] + k", MAMBA2),
    Bug("sums read before they are written", MAMBA2, "        if k == 0:\n            wait_for_last()\n", "", MAMBA2),
    Bug("ends read before they are written", MAMBA2, "        wait_for_last()\n        state", "        state", MAMBA2),
)  # fmt: skip
