#include "framework/kernels/attention.h"

#include <algorithm>

#include "framework/kernels/attention_call.h"
#include "framework/kernels/attention_tiles.h"
#include "framework/kernels/extents.h"
#include "framework/kernels/scratch.h"

namespace tessera::kernels {
namespace {

// With fewer queries than this a block of query_block lanes would be almost empty; they are computed one by one.
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
  if (mask.rate != 0) expect_values("attention", "mask.sample_ids", mask.sample_ids.size(), e.B);
  if (!visible.among.empty()) expect_values("attention", "visible.among", visible.among.size(), e.B * e.T * e.S);
  for (std::size_t i = 0; i < visible.first.size(); ++i) {
    const auto first = visible.first[i], last = visible.last[i];
    if (first <= last && (first < 0 || last >= e.S)) {
      throw ShapeError(text("attention: query ", i, " is to see keys ", first, " to ", last, "; there are ", e.S));
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

/// Writes rows [first, last) of dk and dv of one group: the sum over its parts, in ascending order; or adds it.
void write_keys(const AttentionCall& call, std::int64_t b, std::int64_t g, const float* partials, std::int64_t parts,
                std::int64_t first, std::int64_t last) {
  const auto& e = call.e;
  const auto padded = padded_channels(e.D), run = e.S * padded;
  for (auto s = first; s < last; ++s) {
    float* dk = call.dk + row_of(e.k, b * e.S + s, g);
    float* dv = call.dv + row_of(e.v, b * e.S + s, g);
    const bool joins = call.earlier == Earlier::join;
    if (!joins) std::copy_n(partials + s * padded, e.D, dk);
    if (!joins) std::copy_n(partials + run + s * padded, e.D, dv);
    for (std::int64_t part = joins ? 0 : 1; part < parts; ++part) {
      const float* more = partials + part * 2 * run + s * padded;
      for (std::int64_t i = 0; i < e.D; ++i) dk[i] += more[i];
      for (std::int64_t i = 0; i < e.D; ++i) dv[i] += more[run + i];
    }
  }
}

}  // namespace

void attention_forward(Threads& threads, const AttentionExtents& e, const VisibleKeys& visible, const DropoutMask& mask,
                       std::span<const float> q, std::span<const float> k, std::span<const float> v, std::span<float> o,
                       std::span<float> lse, Earlier earlier) {
  check(e, visible, mask, lse.size());
  check_queries_and_keys(e, q.size(), o.size(), k.size(), v.size());
  AttentionCall call{.e = e,
                     .visible = visible,
                     .mask = mask,
                     .q = q.data(),
                     .k = k.data(),
                     .v = v.data(),
                     .o = nullptr,
                     .lse = nullptr,
                     .d_o = nullptr,
                     .out = o.data(),
                     .lse_out = lse.data(),
                     .dq = nullptr,
                     .dk = nullptr,
                     .dv = nullptr,
                     .earlier = earlier};
  const bool by_rows = e.T < row_at_a_time && earlier == Earlier::overwrite;
  const std::int64_t size = by_rows ? 1 : query_block, blocks = (e.T + size - 1) / size;
  threads.parallel_for(static_cast<std::size_t>(e.B * e.H * blocks), 1, [&](std::size_t tile, std::size_t) {
    const auto i = static_cast<std::int64_t>(tile), head = i / blocks;
    const auto last_first = blocks - 1 - i % blocks;  // longest tasks first: late queries see most keys
    const auto at = query_block_of(e, head / e.H, head % e.H, last_first * size, size);
    by_rows ? attention_forward_row(call, at) : attention_forward_block(call, at);
  });
}

void attention_backward(Threads& threads, const AttentionExtents& e, const VisibleKeys& visible,
                        const DropoutMask& mask, std::span<const float> q, std::span<const float> k,
                        std::span<const float> v, std::span<const float> o, std::span<const float> lse,
                        std::span<const float> d_o, std::span<float> dq, std::span<float> dk, std::span<float> dv,
                        Earlier earlier) {
  check(e, visible, mask, lse.size());
  check_queries_and_keys(e, q.size(), o.size(), k.size(), v.size());
  check_queries_and_keys(e, dq.size(), d_o.size(), dk.size(), dv.size());
  const AttentionCall call{.e = e,
                           .visible = visible,
                           .mask = mask,
                           .q = q.data(),
                           .k = k.data(),
                           .v = v.data(),
                           .o = o.data(),
                           .lse = lse.data(),
                           .d_o = d_o.data(),
                           .out = nullptr,
                           .lse_out = nullptr,
                           .dq = dq.data(),
                           .dk = dk.data(),
                           .dv = dv.data(),
                           .earlier = earlier};
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
