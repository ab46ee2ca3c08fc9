#include "framework/parallel/block_attention.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>

#include "framework/kernels/vector.h"
#include "framework/nn/context_rank.h"

namespace tessera::parallel {
namespace {

constexpr auto keys_name = "keys and values of context parallelism", gradients_name = "their gradients";
constexpr int keys_tag = 0, gradients_tag = 1;

/// Everything about one call that both passes need.
struct Work {
  kernels::AttentionExtents e;
  kernels::VisibleKeys visible;
  kernels::DropoutMask mask;
  comm::Communicator group;
  BlockExchange exchange;
  autograd::HeadSinks sinks;
  PairTap tap;

  int ranks() const { return group.size(); }
  std::int64_t chunk() const { return e.T / 2; }        ///< tokens
  std::int64_t whole() const { return e.T * ranks(); }  ///< tokens of a sample on all ranks
  std::int64_t mask_tokens() const { return e.whole_tokens > 0 ? e.whole_tokens : whole(); }
  std::int64_t packed_row() const { return 2 * e.G * e.D; }  ///< elements of a token's keys and values
  std::size_t block() const { return static_cast<std::size_t>(e.B * e.T * packed_row()); }
  /// Index in the sample of the first token of a rank's chunk 0 or 1.
  std::int64_t first_of(int rank, int of_chunk) const {
    return nn::ContextRank{rank, ranks()}.index(of_chunk * chunk(), whole());
  }
  /// The rank at distance `step` before or behind this one.
  int neighbour(int step) const { return (group.rank() + step + ranks()) % ranks(); }

  /// Extents of one pair of chunks of one sample, with packed keys and values.
  kernels::AttentionExtents pair() const {
    auto one = e;
    one.B = 1;
    one.T = one.S = chunk();
    one.k = {packed_row(), 0, 2 * e.D};
    one.v = {packed_row(), e.D, 2 * e.D};
    one.whole_tokens = mask_tokens();
    return one;
  }
};

/// Calls copy(element of the block, element of the rows) for D elements each of the keys and values of every row, which
/// a block has as [B, T, G, key and value, D].
template <class Copy>
void each_head(kernels::Threads& threads, const Work& w, const Copy& copy) {
  constexpr std::size_t rows_of_a_tile = 64;
  threads.parallel_for(static_cast<std::size_t>(w.e.B * w.e.T), rows_of_a_tile,
                       [&](std::size_t first, std::size_t last) {
                         for (auto row = static_cast<std::int64_t>(first); row < static_cast<std::int64_t>(last); ++row)
                           for (std::int64_t g = 0; g < w.e.G; ++g)
                             for (const auto* heads : {&w.e.k, &w.e.v})
                               copy(row * w.packed_row() + (2 * g + (heads == &w.e.v ? 1 : 0)) * w.e.D,
                                    row * heads->row_stride + heads->offset + g * heads->group_stride);
                       });
}

void pack(kernels::Threads& threads, const Work& w, std::size_t element, std::span<const std::byte> rows,
          std::span<std::byte> block) {
  each_head(threads, w, [&](std::int64_t to, std::int64_t from) {
    std::memcpy(block.data() + static_cast<std::size_t>(to) * element,
                rows.data() + static_cast<std::size_t>(from) * element, static_cast<std::size_t>(w.e.D) * element);
  });
}

void unpack(kernels::Threads& threads, const Work& w, std::span<const float> block, std::span<float> rows) {
  each_head(threads, w,
            [&](std::int64_t from, std::int64_t to) { std::copy_n(block.begin() + from, w.e.D, rows.begin() + to); });
}

/// The keys that each query of a pair of chunks sees, counted in the chunk of keys.
class PairSight {
 public:
  PairSight(autograd::Tape& tape, const Work& w)
      : work_(w), memory_(tape.scratch(static_cast<std::size_t>(2 * w.chunk()))) {
    const auto count = static_cast<std::size_t>(w.chunk());
    const std::span all(reinterpret_cast<std::int32_t*>(memory_.bytes().data()), 2 * count);
    first_ = all.first(count);
    last_ = all.last(count);
    if (w.visible.among.empty()) return;
    mask_memory_ = tape.scratch(DType::uint8, count * count);
    among_ = {reinterpret_cast<std::uint8_t*>(mask_memory_.bytes().data()), count * count};
  }

  /// Looks at the queries of sample b from `query` on and the keys from `key` on. Returns whether any query sees any.
  bool look(std::int64_t b, std::int64_t query, std::int64_t key) {
    const auto count = work_.chunk();
    bool any = false;
    for (std::int64_t t = 0; t < count; ++t) {
      const auto i = static_cast<std::size_t>(t), row = static_cast<std::size_t>(b * work_.whole() + query + t);
      const auto first = std::max<std::int64_t>(work_.visible.first[row] - key, 0);
      const auto last = std::min<std::int64_t>(work_.visible.last[row] - key, count - 1);
      const bool sees = first <= last;
      first_[i] = sees ? static_cast<std::int32_t>(first) : 0;
      last_[i] = sees ? static_cast<std::int32_t>(last) : -1;
      any = any || sees;
      if (among_.empty()) continue;
      const auto from = work_.visible.among.begin() + static_cast<std::ptrdiff_t>(row) * work_.whole() + key;
      std::copy_n(from, count, among_.begin() + t * count);
    }
    return any;
  }
  kernels::VisibleKeys visible() const { return {first_, last_, among_}; }

 private:
  const Work& work_;
  Memory memory_, mask_memory_;
  std::span<std::int32_t> first_, last_;
  std::span<std::uint8_t> among_;
};

/// Where the operands of one pair of chunks begin in their arrays.
struct Pair {
  kernels::AttentionExtents e;
  kernels::DropoutMask mask;
  std::size_t q, o, keys, lse, lse_count;  ///< in elements
};

/// Calls compute(pair, visible) for each pair of a chunk of queries here and one of keys of rank `owner` in which a
/// query sees a key, and progress() behind each.
template <class Compute, class Progress>
void each_pair(const Work& w, PairSight& sight, int owner, const Compute& compute, const Progress& progress) {
  Pair pair{.e = w.pair(),
            .mask = w.mask,
            .q = 0,
            .o = 0,
            .keys = 0,
            .lse = 0,
            .lse_count = static_cast<std::size_t>(w.e.H * w.chunk())};
  for (std::int64_t b = 0; b < w.e.B; ++b)
    for (int queries = 0; queries < 2; ++queries)
      for (int keys = 0; keys < 2; ++keys) {
        const auto query = w.first_of(w.group.rank(), queries), key = w.first_of(owner, keys);
        if (!sight.look(b, query, key)) continue;
        const auto q_row = b * w.e.T + queries * w.chunk(), k_row = b * w.e.T + keys * w.chunk();
        pair.q = static_cast<std::size_t>(q_row * w.e.q.row_stride);
        pair.o = static_cast<std::size_t>(q_row * w.e.o.row_stride);
        pair.keys = static_cast<std::size_t>(k_row * w.packed_row());
        pair.lse = static_cast<std::size_t>(2 * b + queries) * pair.lse_count;
        pair.e.alibi.first_query = query;
        pair.e.alibi.first_key = key;
        pair.mask.first_element = w.mask.first_element + query * w.mask_tokens() + key;
        if (!w.mask.sample_ids.empty())
          pair.mask.sample_ids = w.mask.sample_ids.subspan(static_cast<std::size_t>(b), 1);
        if (w.tap) w.tap(query, key);
        compute(pair, sight.visible());
        progress();
      }
}

kernels::Elements from(const kernels::Elements& x, std::size_t first) { return x.part(first, x.size() - first); }

/// Brings the block of each rank here, one after the other, this rank's own first.
class KeyBlocks {
 public:
  KeyBlocks(autograd::Tape& tape, const Work& w, const Tensor& qkv)
      : work_(w), type_(qkv.dtype()), bytes_(w.block() * size_of(type_)), own_(tape.scratch(type_, w.block())) {
    pack(tape.threads(), w, size_of(type_), qkv.raw(), own_.bytes().first(bytes_));
    const auto others = w.exchange == BlockExchange::gather ? static_cast<std::size_t>(w.ranks()) : 1;
    more_ = tape.scratch(type_, others * w.block());
    if (w.exchange == BlockExchange::gather)
      w.group.all_gather(own_.bytes().first(bytes_), more_.bytes().first(others * bytes_), keys_name);
  }

  /// Calls compute(owner, Elements of keys and values, progress) for each rank; progress() lets the next block travel
  /// on.
  template <class Compute>
  void each(const Compute& compute) {
    for (int step = 0; step < work_.ranks(); ++step) {
      const int owner = work_.neighbour(-step);
      if (work_.exchange == BlockExchange::gather) {
        call(more_.bytes().subspan(static_cast<std::size_t>(owner) * bytes_, bytes_), owner, compute, [] {});
        continue;
      }
      const auto now = (step % 2 == 0 ? own_ : more_).bytes().first(bytes_);
      const auto next = (step % 2 == 0 ? more_ : own_).bytes().first(bytes_);
      comm::Transfer coming, leaving;
      if (step + 1 < work_.ranks()) {
        coming = work_.group.receive(next, work_.neighbour(-1), keys_tag, keys_name);
        leaving = work_.group.send(now, work_.neighbour(1), keys_tag, keys_name);
      }
      call(now, owner, compute, [&] {
        coming.done();
        leaving.done();
      });
      coming.wait();
      leaving.wait();
    }
  }

 private:
  template <class Compute, class Progress>
  void call(std::span<std::byte> block, int owner, const Compute& compute, const Progress& progress) {
    compute(owner, kernels::Elements(block.data(), work_.block(), type_), progress);
  }

  const Work& work_;
  DType type_;
  std::size_t bytes_;
  Memory own_, more_;
};

/// Sums the gradients of this rank's keys and values over all ranks; each rank gives its part of those of every rank.
class BlockGradients {
 public:
  BlockGradients(autograd::Tape& tape, const Work& w)
      : threads_(tape.threads()), work_(w), own_(tape.scratch(w.block())) {
    const bool gathers = w.exchange == BlockExchange::gather;
    parts_ = tape.scratch((gathers ? static_cast<std::size_t>(w.ranks()) : 4) * w.block());
  }

  /// Where to add this rank's part of the gradient of the rank `owner`, in the order of KeyBlocks::each.
  std::span<float> begin(int owner) {
    const bool gathers = work_.exchange == BlockExchange::gather;
    const auto to = gathers                       ? part(static_cast<std::size_t>(owner))
                    : owner == work_.group.rank() ? floats(own_, 0)
                                                  : part(step_ % 2);
    kernels::fill(threads_, 0, to);
    return to;
  }
  /// Lets what was sent last travel on.
  void progress() {
    coming_.done();
    leaving_.done();
  }
  /// The part is complete.
  void end(int owner) {
    const auto step = step_++;
    if (work_.exchange == BlockExchange::gather || owner == work_.group.rank()) return;
    take_in();
    const auto distance = static_cast<int>(step);
    coming_ = work_.group.receive(std::as_writable_bytes(part(2 + step % 2)), work_.neighbour(distance), gradients_tag,
                                  gradients_name);
    leaving_ = work_.group.send(std::as_bytes(part(step % 2)), owner, gradients_tag, gradients_name);
    received_ = part(2 + step % 2);
  }
  /// The sum, in the order in which KeyBlocks::each brings this rank's block to the others; its own part first.
  std::span<const float> sum() {
    if (work_.exchange == BlockExchange::gather)
      work_.group.reduce_scatter(parts_.bytes().first(static_cast<std::size_t>(work_.ranks()) * bytes()),
                                 own_.bytes().first(bytes()), DType::float32, gradients_name);
    else
      take_in();
    return floats(own_, 0);
  }

 private:
  std::size_t bytes() const { return work_.block() * sizeof(float); }
  std::span<float> floats(const Memory& memory, std::size_t index) const {
    return autograd::Tape::floats(memory).subspan(index * work_.block(), work_.block());
  }
  std::span<float> part(std::size_t index) const { return floats(parts_, index); }
  /// Adds what was received last.
  void take_in() {
    coming_.wait();
    leaving_.wait();
    if (!received_.empty()) kernels::add(threads_, received_, floats(own_, 0));
    received_ = {};
  }

  kernels::Threads& threads_;
  const Work& work_;
  Memory own_, parts_;  ///< ring: two parts that are sent, then two that are received
  std::size_t step_ = 0;
  std::span<const float> received_;
  comm::Transfer coming_, leaving_;  // destroyed before the memory that they use
};

/// Calls chunk(first row in the arrays of rows, first element in lse, its elements) for each chunk of queries here.
template <class Chunk>
void each_chunk(const Work& w, const Chunk& chunk) {
  const auto count = static_cast<std::size_t>(w.e.H * w.chunk());
  for (std::int64_t b = 0; b < w.e.B; ++b)
    for (std::int64_t queries = 0; queries < 2; ++queries)
      chunk(b * w.e.T + queries * w.chunk(), static_cast<std::size_t>(2 * b + queries) * count, count);
}

/// lse [B, 2, H, T / 2] before any key is seen: the sinks, or -infinity.
void begin_lse(autograd::Tape& tape, const Work& w, std::span<float> lse) {
  kernels::fill(tape.threads(), -std::numeric_limits<float>::infinity(), lse);
  if (!w.sinks.leaf) return;
  const auto values = tape.read(w.sinks.leaf->value);
  const auto sinks = w.sinks.part(values.span(), w.e.H);
  const auto chunk = static_cast<std::size_t>(w.chunk());
  each_chunk(w, [&](std::int64_t, std::size_t first, std::size_t) {
    for (std::size_t h = 0; h < sinks.size(); ++h)
      std::fill_n(lse.begin() + static_cast<std::ptrdiff_t>(first + h * chunk), chunk, sinks[h]);
  });
}

void sinks_backward(autograd::Tape& tape, const Work& w, const kernels::Elements& o, const kernels::Elements& d_o,
                    std::span<const float> lse) {
  if (!w.sinks.trained()) return;
  const auto values = tape.read(w.sinks.leaf->value);
  const auto gradient = w.sinks.part(w.sinks.leaf->grad_to_add_to(tape.threads()), w.e.H);
  each_chunk(w, [&](std::int64_t row, std::size_t first, std::size_t count) {
    const auto at = static_cast<std::size_t>(row * w.e.o.row_stride);
    kernels::attention_sinks_backward(tape.threads(), w.pair(), w.sinks.part(values.span(), w.e.H), from(o, at),
                                      from(d_o, at), lse.subspan(first, count), gradient);
  });
}

class BlockAttention final : public autograd::Node {
 public:
  BlockAttention(autograd::VarId y, autograd::Var qkv, autograd::Var out, autograd::Var lse, const Work& work,
                 autograd::LeafUse use)
      : y_(y), qkv_(std::move(qkv)), out_(std::move(out)), lse_(std::move(lse)), work_(work), use_(use) {}
  void backward(autograd::Tape& tape) override {
    const auto dy = tape.take_grad(y_);
    const auto target = tape.grad_target(qkv_);
    if (dy.empty()) return;
    const kernels::Elements x = qkv_.value(), o = out_.value(), d_o = dy.tensor;
    sinks_backward(tape, work_, o, d_o, lse_.floats());
    tape.done(use_);
    if (target.tensor.empty()) return;
    must(!target.add, "a fused projection has one attention");
    const auto dx = tape.write(target);
    kernels::fill(tape.threads(), 0, dx);
    KeyBlocks blocks(tape, work_, qkv_.value());
    BlockGradients gradients(tape, work_);
    PairSight sight(tape, work_);
    blocks.each([&](int owner, const kernels::Elements& kv, const auto& progress) {
      const auto dkv = gradients.begin(owner);
      const auto compute = [&](const Pair& p, const kernels::VisibleKeys& visible) {
        const auto k = from(kv, p.keys);
        const auto dk = dkv.subspan(p.keys);
        kernels::attention_backward(tape.threads(), p.e, visible, p.mask,
                                    {.q = from(x, p.q),
                                     .k = k,
                                     .v = k,
                                     .o = from(o, p.o),
                                     .lse = lse_.floats().subspan(p.lse, p.lse_count),
                                     .d_o = from(d_o, p.o),
                                     .dq = dx.span().subspan(p.q),
                                     .dk = dk,
                                     .dv = dk},
                                    kernels::Earlier::join);
      };
      each_pair(work_, sight, owner, compute, [&] {
        progress();
        gradients.progress();
      });
      gradients.end(owner);
    });
    unpack(tape.threads(), work_, gradients.sum(), dx);
  }

 private:
  autograd::VarId y_;
  autograd::Var qkv_, out_, lse_;
  Work work_;
  autograd::LeafUse use_;
};

}  // namespace

autograd::Var block_attention(const autograd::Var& qkv, const kernels::AttentionExtents& e,
                              const kernels::VisibleKeys& visible, const kernels::DropoutMask& mask,
                              const comm::Communicator& group, BlockExchange exchange, const autograd::HeadSinks& sinks,
                              const PairTap& tap) {
  auto& tape = qkv.tape();
  const Work work{
      .e = e, .visible = visible, .mask = mask, .group = group, .exchange = exchange, .sinks = sinks, .tap = tap};
  must(e.T == e.S && e.T % 2 == 0, "a rank has two equal chunks of each sample");
  must(static_cast<std::int64_t>(visible.first.size()) == e.B * work.whole(), "the mask is that of all ranks");
  auto y = tape.result({e.B, e.T, e.H * e.D}, qkv.wants_grad() || sinks.trained());
  auto lse = tape.make({e.B, 2, e.H, work.chunk()}, false);
  {
    const kernels::Elements x = qkv.value();
    const auto o = tape.write(y);
    kernels::fill(tape.threads(), 0, o);
    begin_lse(tape, work, lse.floats());
    KeyBlocks blocks(tape, work, qkv.value());
    PairSight sight(tape, work);
    blocks.each([&](int owner, const kernels::Elements& kv, const auto& progress) {
      const auto compute = [&](const Pair& p, const kernels::VisibleKeys& seen) {
        const auto k = from(kv, p.keys);
        kernels::attention_forward(tape.threads(), p.e, seen, p.mask,
                                   {.q = from(x, p.q),
                                    .k = k,
                                    .v = k,
                                    .o = o.span().subspan(p.o),
                                    .lse = lse.floats().subspan(p.lse, p.lse_count)},
                                   kernels::Earlier::join);
      };
      each_pair(work, sight, owner, compute, progress);
    });
  }
  if (y.wants_grad())
    tape.record<BlockAttention>(y, qkv, y, std::move(lse), work, tape.use(sinks.trained() ? sinks.leaf : nullptr));
  return y;
}

}  // namespace tessera::parallel
