#include "framework/kernels/attention.h"

#include <algorithm>

#include "framework/kernels/attention_call.h"
#include "framework/kernels/attention_pairs.h"
#include "framework/kernels/attention_tiles.h"
#include "framework/kernels/extents.h"
#include "framework/kernels/gemm.h"
#include "framework/kernels/scratch.h"
#include "framework/kernels/type_conversion.h"

namespace tessera::kernels {
namespace {

// Fewer queries than this are computed one by one, because a block of query_block lanes would be almost empty.
constexpr std::int64_t row_at_a_time = 4;

/// Floats that a buffer must hold for its heads: the index of the last float of the last head of the last row, plus
/// one.
std::int64_t reach(const AttentionExtents& e, const HeadRows& rows, std::int64_t tokens, std::int64_t heads) {
  return e.B * tokens == 0 ? 0 : row_of(rows, e.B * tokens - 1, e.G - 1, heads - 1) + e.D;
}

void check(const AttentionExtents& e, const VisibleKeys& visible, const DropoutMask& mask, std::size_t lse) {
  must(e.G > 0 && e.H % e.G == 0, "each group has the same number of heads");
  must(mask.rate >= 0 && mask.rate < 1, "a dropout rate is in [0, 1)");
  expect_values("attention", "visible.first", visible.first.size(), e.B * e.T);
  expect_values("attention", "visible.last", visible.last.size(), e.B * e.T);
  expect_values("attention", "lse", lse, e.B * e.H * e.T);
  if (!e.alibi.slopes.empty()) expect_values("attention", "alibi.slopes", e.alibi.slopes.size(), e.H);
  if (mask.rate != 0) expect_values("attention", "mask.sample_ids", mask.sample_ids.size(), e.B);
  if (!visible.among.empty()) expect_values("attention", "visible.among", visible.among.size(), e.B * e.T * e.S);
  for (std::size_t i = 0; i < visible.first.size(); ++i) {
    const auto first = visible.first[i], last = visible.last[i];
    if (first <= last && (first < 0 || last >= e.S)) {
      throw ShapeError(
          text("attention: the mask lets query ", i, " see keys ", first, " to ", last, "; expected 0 to ", e.S - 1));
    }
  }
}

void check_queries_and_keys(const AttentionExtents& e, std::size_t q, std::size_t o, std::size_t k, std::size_t v) {
  const auto heads = e.H / e.G;
  expect_at_least("attention", "q", q, reach(e, e.q, e.T, heads));
  expect_at_least("attention", "o", o, reach(e, e.o, e.T, heads));
  expect_at_least("attention", "k", k, reach(e, e.k, e.S, 1));
  expect_at_least("attention", "v", v, reach(e, e.v, e.S, 1));
}

bool all_floats(std::initializer_list<DType> types) {
  return std::all_of(types.begin(), types.end(), [](DType type) { return type == DType::float32; });
}

/// Floats of AttentionCall::packed; 0 without products of pairs.
std::size_t packed_floats(const AttentionCall& call) {
  return call.pairs == nullptr ? 0 : static_cast<std::size_t>(PackedKeys(*call.pairs, call.e).floats());
}

/// If `call` multiplies pairs, packs x, laid out as `rows` says, into `memory` and sets call.packed.
void pack_keys(Threads& threads, AttentionCall& call, const Elements& x, const HeadRows& rows, float* memory) {
  if (call.pairs == nullptr) return;
  PackedKeys(*call.pairs, call.e).pack(threads, x, rows, memory);
  call.packed = memory;
}

/// Whether the keys and values of a call are widened once for all blocks of queries that read them, instead of once for
/// each: 16-bit operands that are not multiplied as pairs, of which many blocks read the same keys. With fewer blocks
/// the rows that a block widens are still in the L1 cache when it multiplies them, and reading them from further away
/// costs more than is saved.
bool widens_keys(const AttentionCall& call) {
  constexpr std::int64_t many_blocks = 8;
  const auto& e = call.e;
  return call.pairs == nullptr && call.k.type != DType::float32 && call.v.type != DType::float32 &&
         e.H / e.G * e.T > many_blocks * query_block;
}

/// Floats of the keys and values that widen_keys writes.
std::size_t widened_floats(const AttentionCall& call) {
  return widens_keys(call) ? static_cast<std::size_t>(2 * call.e.G * call.e.B * call.e.S * call.e.D) : 0;
}

/// If widens_keys: writes keys and values as floats to `memory`, dense [G, B * S, D] each, and lets the call read them.
void widen_keys(Threads& threads, AttentionCall& call, float* memory) {
  if (!widens_keys(call)) return;
  const auto& e = call.e;
  const auto rows = e.B * e.S, half = e.G * rows * e.D;
  const auto size = static_cast<std::size_t>(e.D);
  const HeadRows dense{.row_stride = e.D, .offset = 0, .group_stride = rows * e.D};
  constexpr std::int64_t piece = 64;
  const auto pieces = (rows + piece - 1) / piece;
  threads.parallel_for(static_cast<std::size_t>(e.G * pieces), 1, [&](std::size_t tile, std::size_t) {
    const auto g = static_cast<std::int64_t>(tile) / pieces, first = static_cast<std::int64_t>(tile) % pieces * piece;
    for (auto row = first; row < std::min(rows, first + piece); ++row) {
      float* to = memory + row_of(dense, row, g);
      widen_range(call.k.part(static_cast<std::size_t>(row_of(e.k, row, g)), size), {to, size});
      widen_range(call.v.part(static_cast<std::size_t>(row_of(e.v, row, g)), size), {to + half, size});
    }
  });
  const std::span<const float> all(memory, static_cast<std::size_t>(2 * half));
  call.k = all.first(static_cast<std::size_t>(half));
  call.v = all.last(static_cast<std::size_t>(half));
  call.k_rows = call.v_rows = dense;
}

/// Number of parts into which the query blocks of a key/value group are divided in the backward pass, so that several
/// threads have work even if there are few groups. Each part has its own sums of dk and dv, which costs memory, hence
/// no more than needed for 8 tasks. Depends on the extents only.
std::int64_t parts_of(const AttentionExtents& e) {
  const auto blocks = e.H / e.G * ((e.T + query_block - 1) / query_block);
  constexpr std::int64_t enough = 8;
  return std::min(blocks, std::max<std::int64_t>(1, (enough + e.B * e.G - 1) / (e.B * e.G)));
}

/// One part: every parts-th query block of the group, because under a causal mask later queries see more keys and
/// consecutive blocks would load the parts unevenly.
void backward_part(const AttentionCall& call, std::int64_t b, std::int64_t g, std::int64_t part, std::int64_t parts,
                   KeyGradients to) {
  const auto& e = call.e;
  const auto heads = e.H / e.G, blocks = (e.T + query_block - 1) / query_block;
  for (auto unit = part; unit < heads * blocks; unit += parts) {
    const auto head = g * heads + unit / blocks;
    attention_backward_block(call, query_block_of(e, b, head, unit % blocks * query_block, query_block), to);
  }
}

/// Writes rows [first, last) of dk and dv of one group: the sum over the parts of the group, in ascending order. With
/// Earlier::join the sum is added.
void write_keys(const AttentionCall& call, std::int64_t b, std::int64_t g, const float* partials, std::int64_t parts,
                std::int64_t first, std::int64_t last) {
  const auto& e = call.e;
  const auto padded = padded_channels(e.D), run = e.S * padded;
  const Scratch rows(static_cast<std::size_t>(2 * e.D));
  for (auto s = first; s < last; ++s) {
    const auto k_at = row_of(e.k, b * e.S + s, g), v_at = row_of(e.v, b * e.S + s, g);
    const bool joins = call.earlier == Earlier::join;
    float* dk = call.dk.type == DType::float32 ? floats_at(call.dk, k_at) : rows.data();
    float* dv = call.dv.type == DType::float32 ? floats_at(call.dv, v_at) : rows.data() + e.D;
    if (!joins) std::copy_n(partials + s * padded, e.D, dk);
    if (!joins) std::copy_n(partials + run + s * padded, e.D, dv);
    for (std::int64_t part = joins ? 0 : 1; part < parts; ++part) {
      const float* more = partials + part * 2 * run + s * padded;
      for (std::int64_t i = 0; i < e.D; ++i) dk[i] += more[i];
      for (std::int64_t i = 0; i < e.D; ++i) dv[i] += more[run + i];
    }
    const auto size = static_cast<std::size_t>(e.D);
    if (call.dk.type != DType::float32) narrow_range({dk, size}, call.dk.part(static_cast<std::size_t>(k_at), size));
    if (call.dv.type != DType::float32) narrow_range({dv, size}, call.dv.part(static_cast<std::size_t>(v_at), size));
  }
}

}  // namespace

void attention_forward(Threads& threads, const AttentionExtents& e, const VisibleKeys& visible, const DropoutMask& mask,
                       const AttentionForward& of, Earlier earlier) {
  attention_forward_by(pair_tiles(), threads, e, visible, mask, of, earlier);
}

void attention_backward(Threads& threads, const AttentionExtents& e, const VisibleKeys& visible,
                        const DropoutMask& mask, const AttentionBackward& of, Earlier earlier) {
  attention_backward_by(pair_tiles(), threads, e, visible, mask, of, earlier);
}

void attention_forward_by(const TileKernels* pairs, Threads& threads, const AttentionExtents& e,
                          const VisibleKeys& visible, const DropoutMask& mask, const AttentionForward& of,
                          Earlier earlier) {
  check(e, visible, mask, of.lse.size());
  check_queries_and_keys(e, of.q.size(), of.o.size(), of.k.size(), of.v.size());
  const auto factors = {of.q.type, of.k.type, of.v.type};
  must(of.o.type == DType::float32 || earlier == Earlier::overwrite, "attention joins earlier results that are floats");
  must(of.sinks.empty() || earlier == Earlier::overwrite, "sinks count once, in the first of several calls");
  if (!of.sinks.empty()) expect_values("attention", "sinks", of.sinks.size(), e.H);
  const bool by_rows =
      e.T < row_at_a_time && earlier == Earlier::overwrite && all_floats(factors) && of.o.type == DType::float32;
  AttentionCall call{.e = e,
                     .visible = visible,
                     .mask = mask,
                     .q = of.q,
                     .k = of.k,
                     .v = of.v,
                     .o = {},
                     .d_o = {},
                     .k_rows = e.k,
                     .v_rows = e.v,
                     .out = of.o,
                     .lse_out = of.lse.data(),
                     .sinks = of.sinks.empty() ? nullptr : of.sinks.data(),
                     .earlier = earlier};
  if (pairs != nullptr && can_multiply_pairs(e, factors)) call.pairs = pairs;
  const Scratch packed(packed_floats(call));
  pack_keys(threads, call, call.v, e.v, packed.data());
  const Scratch widened(widened_floats(call));
  widen_keys(threads, call, widened.data());
  const std::int64_t size = by_rows ? 1 : query_block, blocks = (e.T + size - 1) / size;
  threads.parallel_for(static_cast<std::size_t>(e.B * e.H * blocks), 1, [&](std::size_t tile, std::size_t) {
    const auto i = static_cast<std::int64_t>(tile), head = i / blocks;
    const auto last_first = blocks - 1 - i % blocks;  // longest tasks first: late queries see most keys
    const auto at = query_block_of(e, head / e.H, head % e.H, last_first * size, size);
    by_rows ? attention_forward_row(call, at) : attention_forward_block(call, at);
  });
}

void attention_backward_by(const TileKernels* pairs, Threads& threads, const AttentionExtents& e,
                           const VisibleKeys& visible, const DropoutMask& mask, const AttentionBackward& of,
                           Earlier earlier) {
  check(e, visible, mask, of.lse.size());
  check_queries_and_keys(e, of.q.size(), of.o.size(), of.k.size(), of.v.size());
  check_queries_and_keys(e, of.dq.size(), of.d_o.size(), of.dk.size(), of.dv.size());
  const auto factors = {of.q.type, of.k.type, of.v.type, of.d_o.type};
  must(all_floats({of.dq.type, of.dk.type, of.dv.type}) || earlier == Earlier::overwrite,
       "attention joins earlier results that are floats");
  AttentionCall call{.e = e,
                     .visible = visible,
                     .mask = mask,
                     .q = of.q,
                     .k = of.k,
                     .v = of.v,
                     .o = of.o,
                     .d_o = of.d_o,
                     .k_rows = e.k,
                     .v_rows = e.v,
                     .lse = of.lse.data(),
                     .dq = of.dq,
                     .dk = of.dk,
                     .dv = of.dv,
                     .earlier = earlier};
  if (pairs != nullptr && can_multiply_pairs(e, factors)) call.pairs = pairs;
  const Scratch packed(packed_floats(call));
  pack_keys(threads, call, call.k, e.k, packed.data());
  const Scratch widened(widened_floats(call));
  widen_keys(threads, call, widened.data());
  // All query blocks of a group add to the same dk and dv. One part per group needs no memory beyond the thread's own
  // scratch; several parts are summed in order in a second loop.
  const auto parts = parts_of(e), run = e.S * padded_channels(e.D), groups = e.B * e.G;
  if (parts <= 1) {
    threads.parallel_for(static_cast<std::size_t>(groups), 1, [&](std::size_t tile, std::size_t) {
      const auto b = static_cast<std::int64_t>(tile) / e.G, g = static_cast<std::int64_t>(tile) % e.G;
      const Scratch memory(static_cast<std::size_t>(2 * run));
      float* sums = memory.data();
      std::fill_n(sums, 2 * run, 0.0F);
      backward_part(call, b, g, 0, 1, {sums, sums + run});
      write_keys(call, b, g, sums, 1, 0, e.S);
    });
    return;
  }
  const Scratch memory(static_cast<std::size_t>(groups * parts * 2 * run));
  float* partials = memory.data();
  threads.parallel_for(static_cast<std::size_t>(groups * parts), 1, [&](std::size_t tile, std::size_t) {
    const auto group = static_cast<std::int64_t>(tile) / parts, part = static_cast<std::int64_t>(tile) % parts;
    float* sums = partials + static_cast<std::int64_t>(tile) * 2 * run;
    std::fill_n(sums, 2 * run, 0.0F);
    backward_part(call, group / e.G, group % e.G, part, parts, {sums, sums + run});
  });
  constexpr std::int64_t rows = 64;
  const auto pieces = (e.S + rows - 1) / rows;
  threads.parallel_for(static_cast<std::size_t>(groups * pieces), 1, [&](std::size_t tile, std::size_t) {
    const auto group = static_cast<std::int64_t>(tile) / pieces,
               first = static_cast<std::int64_t>(tile) % pieces * rows;
    write_keys(call, group / e.G, group % e.G, partials + group * parts * 2 * run, parts, first,
               std::min(e.S, first + rows));
  });
}

}  // namespace tessera::kernels
