"""Kernels with one bug each, made by changing their text: what the emulator has to notice."""

from __future__ import annotations

import functools
import importlib.util
import sys
import types
from dataclasses import dataclass
from pathlib import Path

import assay.tiles

TILES = Path(assay.tiles.__file__).parent
PIPELINE, COUNTED = "pipeline", "counted_pipeline"
GEMM, ATTENTION, BASED = "kernels/gemm", "kernels/attention", "kernels/based_hopper"
TWO_WALKS, ONE_WALK = "kernels/attention_two_walks", "kernels/attention_one_walk"
CAUSAL = "kernels/attention_causal_walk"
MAMBA2, ENDS = "kernels/mamba2_hopper", "kernels/mamba2_ends"
BOXES, HELD, CONV2D = "kernels/conv2d_boxes", "kernels/conv2d_held", "kernels/conv2d_hopper"
BELOW = (PIPELINE, COUNTED, ONE_WALK, ENDS, BOXES, HELD)
"""What kernels are made of, each of those before it."""


@dataclass(frozen=True)
class Bug:
    name: str
    file: str
    old: str
    new: str
    kernel: str = "both"
    """Which kernel shows it."""

    def load(self, kernel: str, folder: Path) -> types.ModuleType:
        """The kernel's module as it is with the bug: what the bug changes and whatever imports that, made anew."""
        anew: dict[str, types.ModuleType] = {}
        for file in _made_of(kernel):
            text = self._changed(file)
            for below in anew:
                text = text.replace(f"{_dotted(below)} ", f"{anew[below].__name__} ")
            if text != _text(file):
                text = text.replace('@op("', f'@op("{self._mark}_')  # operators have one name each
                anew[file] = _load(f"{Path(file).name}_{self._mark}", text, folder)
        return anew.get(kernel) or importlib.import_module(_dotted(kernel))

    @property
    def _mark(self) -> str:
        return "".join(c if c.isalnum() else "_" for c in self.name)

    def _changed(self, file: str) -> str:
        text = _text(file)
        if file != self.file:
            return text
        if text.count(self.old) != 1:
            raise ValueError(f"{self.name}: its text occurs {text.count(self.old)} times in {file}.py")
        return text.replace(self.old, self.new)


@functools.cache
def _made_of(kernel: str) -> tuple[str, ...]:
    """What a kernel imports of those below, itself or by way of others, and the kernel behind that."""
    found = (kernel,)
    for below in (file for file in reversed(BELOW) if file != kernel):
        if any(f"{_dotted(below)} " in _text(file) for file in found):
            found = (below, *found)
    return found


@functools.cache
def _text(file: str) -> str:
    return (TILES / f"{file}.py").read_text()


def _dotted(file: str) -> str:
    return f"assay.tiles.{file.replace('/', '.')}"


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
    Bug("first slot read before it is full", PIPELINE, "    mbarrier.wait(full.index(i % w.stages), (i // w.stages) & 1)\n    if", "    if"),
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
    Bug("a slot held for two steps never given back", PIPELINE, "            mbarrier.arrive(empty.index((i - 2) % w.stages), count=1)\n", "            n += 0\n", ONE_WALK),
    Bug("half of dS read before it is there", ONE_WALK, "        mbarrier.wait(room[6].index(k % 2), ((k - 1) // 2) & 1)\n", "", ONE_WALK),
    Bug("keys overwritten while the other reads them", ONE_WALK, "            w.meet(room, more)\n", "            k += 0\n", ONE_WALK),
    Bug("one place for dS", ONE_WALK, "            ds, keys = room[5].index(k % 2 * 2 + half)", "            ds, keys = room[5].index(half)", ONE_WALK),
    Bug("dS without a fence", ONE_WALK, "        fence_async_shared()\n", "", ONE_WALK),
    Bug("queries of the wrong step", ONE_WALK, "room[0].index((slot + w.stages - 1) % w.stages)", "room[0].index(slot)", ONE_WALK),
    Bug("gradients of the wrong step", ONE_WALK, "w.queries(w, g, at, max(k - 1, 0))", "w.queries(w, g, at, k)", ONE_WALK),
    Bug("dQ of the wrong step", ONE_WALK, "        head, first = w.queries(w, g, at, k - 1)\n        block", "        head, first = w.queries(w, g, at, k)\n        block", ONE_WALK),
    Bug("both consumers add to one half", ONE_WALK, "* (w.D // 64) + part\n", "* (w.D // 64)\n", ONE_WALK),
    Bug("dQ read in flight", ONE_WALK, "        dq = warpgroup_mma_wait(1, (dq,))\n", "", ONE_WALK),
    Bug("sums of rows read before they are written", ONE_WALK, "            wait_for_last()  #", "            k += 0  #", CAUSAL),
    Bug("sums of rows read too early, not causal", ONE_WALK, "            wait_for_last()  #", "            k += 0  #", ONE_WALK),
    Bug("a tile skipped", COUNTED, "t = gl.num_programs(0) + take", "t = gl.num_programs(0) + 1 + take", CAUSAL),
    Bug("first tiles taken again", COUNTED, "t = gl.num_programs(0) + take", "t = take", CAUSAL),
    Bug("a tile taken before the counter is cleared", COUNTED, "    t = gl.program_id(0)\n    while", "    t = take(w.counter(w, g))\n    while", CAUSAL),
    Bug("the next tile entered before it is left", COUNTED, "        mbarrier.wait(turns.index(1), (n & 1) ^ 1)\n        _tell(w, g, t, n, told, turns.index(0))\n", "        _tell(w, g, t, n, told, turns.index(0))\n", CAUSAL),
    Bug("a tile told before the last one is left", COUNTED, "        mbarrier.wait(turns.index(1), (n & 1) ^ 1)\n        _tell(w, g, t, n, told, turns.index(0))\n", "        _tell(w, g, t, n, told, turns.index(0))\n        mbarrier.wait(turns.index(1), (n & 1) ^ 1)\n", CAUSAL),
    Bug("the end told before the last tile is left", COUNTED, "    mbarrier.wait(turns.index(1), (n & 1) ^ 1)\n    _tell(w, g, t, n, told, turns.index(0))\n    mbarrier", "    _tell(w, g, t, n, told, turns.index(0))\n    mbarrier", CAUSAL),
    Bug("a tile not told", COUNTED, "        tma.async_copy_global_to_shared(w.numbers(w, g), [4 * min(t, w.tiles(w, g))], bar, told)\n", "        n += 0\n", CAUSAL),
    Bug("a tile told by the wrong row", COUNTED, "[4 * min(t, w.tiles(w, g))]", "[4 * min(t - 1, w.tiles(w, g))]", CAUSAL),
    Bug("rows beyond the end told", COUNTED, "[4 * min(t, w.tiles(w, g))]", "[4 * t]", CAUSAL),
    Bug("a number not announced", COUNTED, "        mbarrier.expect(bar, w.numbers(w, g).block_type.nbytes)\n", "", CAUSAL),
    Bug("a number announced without its bytes", COUNTED, "        mbarrier.expect(bar, w.numbers(w, g).block_type.nbytes)\n", "        mbarrier.arrive(bar, count=1)\n", CAUSAL),
    Bug("numbers copied before they are written", COUNTED, "    if n == 0:\n", "    if n < 0:\n", CAUSAL),
    Bug("a first tile that lacks an arrival", COUNTED, "    if n == 0:\n        mbarrier.arrive(bar, count=1)\n", "    if n == 0:\n        n += 0\n", CAUSAL),
    Bug("a second tile that is not told", COUNTED, "    if n == 0:\n", "    if n <= 1:\n", CAUSAL),
    Bug("keys there before the number is", COUNTED, "mbarrier.init(turns.index(0), count=2)", "mbarrier.init(turns.index(0), count=1)", CAUSAL),
    Bug("the end not told", COUNTED, "    _tell(w, g, t, n, told, turns.index(0))\n    mbarrier", "    mbarrier.arrive(turns.index(0), count=1)\n    mbarrier", CAUSAL),
    Bug("the end told without an arrival", COUNTED, "    _tell(w, g, t, n, told, turns.index(0))\n    mbarrier", "    mbarrier", CAUSAL),
    Bug("nobody hears of the end", COUNTED, "    mbarrier.arrive(turns.index(0), count=1)  # nothing belongs to the end\n", "", CAUSAL),
    Bug("a tile heard of too early", COUNTED, "        mbarrier.wait(turns.index(0), n & 1)\n", "", CAUSAL),
    Bug("a first tile that nobody tells", COUNTED, "    t = gl.program_id(0)\n    mbarrier.wait(turns.index(0), 0)\n", "    mbarrier.wait(turns.index(0), 0)\n    t = heard(told)\n", CAUSAL),
    Bug("a first tile begun before its keys are there", COUNTED, "    mbarrier.wait(turns.index(0), 0)\n", "", CAUSAL),
    Bug("the counter where the end is told", CAUSAL, "4 * (w.tiles(w, g) + 1)", "4 * w.tiles(w, g)", CAUSAL),
    Bug("a tile left by one consumer alone", COUNTED, "mbarrier.init(turns.index(1), count=w.consumers)", "mbarrier.init(turns.index(1), count=1)", CAUSAL),
    Bug("a tile left while its keys are read", COUNTED, "        state = w.last(w, g, at, part, state, room, (i - 1) % w.stages)\n", "        mbarrier.arrive(turns.index(1), count=1)\n        state = w.last(w, g, at, part, state, room, (i - 1) % w.stages)\n", CAUSAL),
    Bug("the first step of a tile read early", COUNTED, "        mbarrier.wait(full.index(i % w.stages), (i // w.stages) & 1)\n        state", "        state", CAUSAL),
    Bug("a slot filled before it is empty", COUNTED, "            mbarrier.wait(empty.index(slot), ((i // w.stages) & 1) ^ 1)\n", "", CAUSAL),
    Bug("the last step of a tile read early", COUNTED, "        mbarrier.wait(full.index(i % w.stages), (i // w.stages) & 1)\n        i += 1\n", "        i += 1\n", CAUSAL),
    Bug("a slot of the last step never given back", COUNTED, "        mbarrier.arrive(empty.index((i - 2) % w.stages), count=1)\n", "", CAUSAL),
    Bug("key gradients not waited for at the end", COUNTED, "    tma.store_wait(0)\n", "", CAUSAL),
    Bug("dK written where dV is still stored from", CAUSAL, "        tma.store_wait(0)\n", "", CAUSAL),
    Bug("key gradients without a fence", CAUSAL, "        fence_async_shared()\n", "", CAUSAL),
    Bug("key gradients by way of the next keys", CAUSAL, "dv, room[7].index(part)", "dv, room[2].index(part)", CAUSAL),
    Bug("heads of the last group are those of the first", CAUSAL, "return block * 128, first + head", "return block * 128, head", CAUSAL),
    Bug("keys fetched beyond the last", CAUSAL, "min(g[7] - at[0], 128)", "128", CAUSAL),
    Bug("weights written where y is still stored from", MAMBA2, "        tma.store_wait(0)\n", "", MAMBA2),
    Bug("weights without a fence", MAMBA2, "store(weights.to(g[0].dtype))\n        fence_async_shared()\n", "store(weights.to(g[0].dtype))\n", MAMBA2),
    Bug("y without a fence", MAMBA2, "        fence_async_shared()\n        corner", "        corner", MAMBA2),
    Bug("y read in flight", MAMBA2, "y, state = warpgroup_mma_wait(1, (y, state))", "y, state = warpgroup_mma_wait(2, (y, state))", MAMBA2),
    Bug("weights made of products in flight", MAMBA2, "warpgroup_mma_wait(0, (alike,)) * decays, room)\n        return", "warpgroup_mma_wait(1, (alike,)) * decays, room)\n        return", MAMBA2),
    Bug("a slot given back before the next step", ENDS, "    early: ClassVar[bool] = True\n", "    early: ClassVar[bool] = True\n    holds: ClassVar[bool] = False\n", MAMBA2),
    Bug("a slot given back while an end grows", ENDS, "        return warpgroup_mma_wait(0, (acc,)), after, operand", "        return warpgroup_mma_wait(1, (acc,)), after, operand", MAMBA2),
    Bug("decays of the first chunks alone", ENDS, "        if k % w.together == 0:\n", "        if k < 0:\n", MAMBA2),
    Bug("decays of later chunks that begin anew", ENDS, "k, gl.max(after, 0), room)", "k, 0.0, room)", MAMBA2),
    Bug("an end that decays by its own chunk", ENDS, "after = after + gl.associative_scan", "after = after + total + gl.associative_scan", MAMBA2),
    Bug("decays of the other head", ENDS, "place = part * w.together + k % w.together", "place = k % w.together", MAMBA2),
    Bug("records of one head not announced", MAMBA2, "+ w.consumers * each)", "+ each)", MAMBA2),
    Bug("later keys seen", MAMBA2, "gl.where(key <= query, w.across", "gl.where(key <= query + 1, w.across", MAMBA2),
    Bug("ends that do not decay", MAMBA2, "state = state * gl.exp2(decay) + ended", "state = state + ended", MAMBA2),
    Bug("a state that decays by some rows too few", MAMBA2, "kept.slice(191, 1)", "kept.slice(170, 1)", MAMBA2),
    Bug("an end added twice", MAMBA2, "soon, later = w.ended(w, g, at, part, before + 1)", "soon, later = w.ended(w, g, at, part, before)", MAMBA2),
    Bug("chunks of an end walked forwards", ENDS, "return at[3] * g[7] + w.steps(w, g, at) - 1 - k", "return at[3] * g[7] + k", MAMBA2),
    Bug("records read before they are written", MAMBA2, "        if k == 0:\n            wait_for_last()\n", "", MAMBA2),
    Bug("ends read before they are written", MAMBA2, "            wait_for_last()\n            state", "            state", MAMBA2),
    Bug("values of the step at hand", BASED, "w.weighted(w, room, (slot + w.stages - 1) % w.stages, p, acc)", "w.weighted(w, room, slot, p, acc)", BASED),
    Bug("scores weighed in flight", BASED, "        s = warpgroup_mma_wait(1, (s,))\n", "", BASED),
    Bug("a slot given back while values are multiplied", BASED, "        return warpgroup_mma_wait(0, (acc,)), p, total\n", "        return warpgroup_mma_wait(1, (acc,)), p, total\n", BASED),
    Bug("last values in flight", BASED, "return warpgroup_mma_wait(0, (w.weighted(w, room, slot, p, acc),)), total", "return w.weighted(w, room, slot, p, acc), total", BASED),
    Bug("a query that does not see itself", BASED, "gl.where(key <= gl.expand_dims", "gl.where(key < gl.expand_dims", BASED),
    Bug("later keys in the sums", BASED, "            total += w.summed(w, p)\n", "            total += w.summed(w, root * root + w.unit / 2)\n", BASED),
    Bug("one block too few is masked", BASED, "return -(-(self.BN - math.gcd(self.rows, self.BN) + self.rows) // self.BN)", "return 1", BASED),
    Bug("one key block too few", BASED, "return gl.cdiv(min(at[0] + w.rows, g[4]), w.BN)", "return max(min(at[0] + w.rows, g[4]) // w.BN, 1)", BASED),
    Bug("key blocks walked forwards", BASED, "corner = [at[1], at[2], (w.steps(w, g, at) - 1 - k) * w.BN, 0]", "corner = [at[1], at[2], k * w.BN, 0]", BASED),
    Bug("heads of one batch entry only", BASED, "pair // g[5], pair % g[5], n % 2", "pair // g[6], pair % g[5], n % 2", BASED),
    Bug("values not announced to the ring", BASED, "mbarrier.expect(bar, g[1].block_type.nbytes + g[2].block_type.nbytes)", "mbarrier.expect(bar, g[1].block_type.nbytes)", BASED),
    Bug("queries of one consumer not announced", BASED, "mbarrier.expect(bar, w.consumers * g[0].block_type.nbytes)", "mbarrier.expect(bar, g[0].block_type.nbytes)", BASED),
    Bug("queries of the other entry", BASED, "queries = room[0].index(w.consumers * at[3] + part)", "queries = room[0].index(w.consumers * (1 - at[3]) + part)", BASED),
    Bug("both consumers have the same queries", BASED, "queries = room[0].index(w.consumers * at[3] + part)", "queries = room[0].index(w.consumers * at[3])", BASED),
    Bug("room reused while o is stored", BASED, "        tma.store_wait(0)\n", "", BASED),
    Bug("o without a fence", BASED, "        fence_async_shared()\n", "", BASED),
    Bug("no linear term", BASED, "root = s * (w.root / 4) + w.root", "root = s * (w.root / 4)", BASED),
    Bug("sums that begin anew", BASED, "total += w.summed(w, p)", "total = w.summed(w, p)", BASED),
    Bug("fp16 weights not scaled back", BASED, "            acc = acc * (1 / w.unit)\n", "            acc = acc * 1.0\n", BASED),
    Bug("fp16 weights not scaled", BASED, "HALF_UNIT = 2.0**-12", "HALF_UNIT = 1.0", BASED),
    Bug("boxes of one consumer announced", BOXES, "w.consumers * g[0].block_type.nbytes + g[1]", "g[0].block_type.nbytes + g[1]", CONV2D),
    Bug("the box of another consumer", BOXES, "room[0].index(w.consumers * slot + part).reshape", "room[0].index(w.consumers * slot).reshape", CONV2D),
    Bug("taps of a row walked down", BOXES, "down, across = tap // w.S * g[10] - g[8], tap % w.S * g[11] - g[9]", "down, across = tap % w.S * g[10] - g[8], tap // w.S * g[11] - g[9]", CONV2D),
    Bug("taps that are not apart", BOXES, "tap // w.S * g[10] - g[8]", "tap // w.S - g[8]", CONV2D),
    Bug("no padding above", BOXES, "tap // w.S * g[10] - g[8]", "tap // w.S * g[10]", CONV2D),
    Bug("the first channels of each tap alone", BOXES, "[image, i + down, j + across, channel]", "[image, i + down, j + across, 0]", CONV2D),
    Bug("a weight of the wrong tap", BOXES, "[at[1], tap, channel]", "[at[1], tap + 1, channel]", CONV2D),
    Bug("boxes beyond the last row", BOXES, "k // across % down", "k // across", CONV2D),
    Bug("a slot given back while its boxes are read", BOXES, "return warpgroup_mma_wait(1, (acc,))", "return warpgroup_mma_wait(2, (acc,))", CONV2D),
    Bug("sums of a convolution in flight", BOXES, "        return warpgroup_mma_wait(0, (acc,))\n", "        return acc\n", CONV2D),
    Bug("a bias beyond the outputs", BOXES, "gl.load(g[3] + n, n < g[7], other=0.0)", "gl.load(g[3] + n)", CONV2D),
    Bug("squares of the wrong sides", BOXES, "[w.images, w.rows // 2, 2, w.columns // 2, 2, w.BN]", "[w.images, w.columns // 2, 2, w.rows // 2, 2, w.BN]", CONV2D),
    Bug("two of a square's four", BOXES, "gl.reduce(gl.reduce(squares, 2, _greater), 3, _greater)", "gl.reduce(squares, 2, _greater).unbind(3)[0]", CONV2D),
    Bug("maxima where squares are not", BOXES, "            i, j = i // 2, j // 2\n", "", CONV2D),
    Bug("negative sums kept", BOXES, "acc = gl.where(acc < 0.0, 0.0, acc)", "acc = gl.where(acc < 0.0, acc, acc)", CONV2D),
    Bug("y written where it is still stored from", BOXES, "        tma.store_wait(0)\n", "", CONV2D),
    Bug("a convolution's y without a fence", BOXES, "        fence_async_shared()\n", "", CONV2D),
    Bug("weights that come again while they are read", HELD, "if at[2] == 0:", "if at[2] >= 0:", CONV2D),
    Bug("weights that are not announced", HELD, "mbarrier.expect(bar, w.taps * w.blocks * g[1].block_type.nbytes)", "mbarrier.expect(bar, g[1].block_type.nbytes)", CONV2D),
    Bug("lower rows not announced", HELD, "g[0].block_type.nbytes + g[12].block_type.nbytes", "g[0].block_type.nbytes", CONV2D),
    Bug("lower rows in the place of the last upper one", HELD, "room[0].index(row + 8)", "room[0].index(row + 7)", CONV2D),
    Bug("lower rows of x a row too low", HELD, "i + 8 - g[8]", "i + 9 - g[8]", CONV2D),
    Bug("each tap with the same rows", HELD, "(7 + w.R) + r\n", "(7 + w.R)\n", CONV2D),
    Bug("weights of taps of the column before", HELD, "room[1].index(k * w.R + r)", "room[1].index(r)", CONV2D),
    Bug("weights stored by rows of taps", HELD, "tap = k % w.R * w.S + k // w.R // w.blocks", "tap = k // w.blocks", CONV2D),
    Bug("a slot given back while taps read it", HELD, "return warpgroup_mma_wait(w.R, (acc,))", "return warpgroup_mma_wait(w.R + 1, (acc,))", CONV2D),
    Bug("boxes of another consumer's rows", HELD, "            row = (w.consumers * slot + part) * (7 + w.R) + r\n", "            row = w.consumers * slot * (7 + w.R) + r\n", CONV2D),
)  # fmt: skip
