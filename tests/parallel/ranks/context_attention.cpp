// Attention whose sequence ranks share gives what one rank computes: values and gradients, by every exchange.
#include <cstring>
#include <random>
#include <set>

#include "framework/parallel/block_attention.h"
#include "framework/parallel/context_parallel.h"
#include "tests/parallel/ranks/cut.h"

namespace tessera::parallel {
namespace {

struct Exchange {
  ContextExchange kind;
  int ranks, heads;  ///< heads: ranks of the first level
  bool contiguous = false;
};

std::ostream& operator<<(std::ostream& out, const Exchange& e) {
  return out << "exchange " << static_cast<int>(e.kind) << " among " << e.ranks << " ranks, first level " << e.heads
             << (e.contiguous ? ", contiguous" : "");
}

/// A drawn attention of all tokens, the same on all ranks.
struct Drawn {
  std::mt19937 draw;
  kernels::AttentionExtents e{};
  std::vector<std::int32_t> first, last;
  std::vector<std::uint8_t> among;
  std::vector<std::int64_t> ids;
  std::vector<float> slopes, sinks;
  double rate = 0;
  std::int64_t first_element = 0;

  Drawn(std::uint64_t seed, int ranks) : draw(static_cast<unsigned>(seed)) {
    const auto number = [&](std::int64_t from, std::int64_t to) {
      return std::uniform_int_distribution<std::int64_t>(from, to)(draw);
    };
    const std::int64_t groups[] = {1, 2, 8, 16};
    e.B = number(1, 2);
    e.G = groups[draw() % 4];
    const auto queries = e.G == 16 ? 1 : 8 / e.G * number(1, 2);
    e.H = e.G * queries;
    e.D = 4 * number(1, 3);
    e.T = e.S = 2 * ranks * number(1, 90 / ranks);
    const auto group = (queries + 2) * e.D, row = e.G * group;
    e.q = {row, 0, group, e.D};
    e.k = {row, queries * e.D, group};
    e.v = {row, (queries + 1) * e.D, group};
    e.o = {e.H * e.D, 0, queries * e.D, e.D};
    e.scale = 0.4;
    e.softcap = draw() % 3 == 0 ? 3.0 : 0.0;
    rate = draw() % 2 == 0 ? 0.2 : 0.0;
    first_element = number(0, 2) * e.H * e.S * e.S;
    for (std::int64_t b = 0; b < e.B; ++b) ids.push_back(number(0, 100));
    see(draw() % 5, number(1, 40));
    const bool biased = draw() % 2 == 0, sunk = draw() % 2 == 0;
    for (std::int64_t h = 0; h < e.H; ++h) {
      if (biased) slopes.push_back(0.3F / static_cast<float>(1 + h));
      if (sunk) sinks.push_back(static_cast<float>(number(-2, 2)));
    }
    e.alibi = {slopes, 0, 0, 0.7, draw() % 2 == 0};
  }
  Drawn(const Drawn&) = delete;  // e refers to the slopes

  /// Causal, a window, documents, a window to both sides, or a mask of its own.
  void see(unsigned kind, std::int64_t length) {
    for (std::int64_t i = 0; i < e.B * e.S; ++i) {
      const auto t = i % e.S;
      const auto a = kind == 1 || kind == 3 ? std::max<std::int64_t>(0, t - length)
                     : kind == 2            ? t / length * length
                                            : 0;
      first.push_back(static_cast<std::int32_t>(kind == 4 ? 0 : a));
      last.push_back(static_cast<std::int32_t>(kind == 4 ? e.S - 1 : kind == 3 ? std::min(e.S - 1, t + length) : t));
      if (kind != 4) continue;
      for (std::int64_t s = 0; s < e.S; ++s) among.push_back(draw() % 3 == 0 && t % 11 != 4 ? 1 : 0);
    }
  }
  kernels::VisibleKeys visible() const { return {first, last, among}; }
  kernels::DropoutMask mask() const { return {RandomKey(3, Purpose::attention_dropout, 1), ids, rate, first_element}; }
};

/// The rows of a rank's tokens of [B, S, width].
std::vector<float> held(const std::vector<float>& whole, const nn::ContextRank& context, std::int64_t samples,
                        std::int64_t length, std::int64_t width) {
  std::vector<float> out;
  for (std::int64_t b = 0; b < samples; ++b)
    for (std::int64_t t = 0; t < length / context.ranks; ++t) {
      const auto from = whole.begin() + (b * length + context.index(t, length)) * width;
      out.insert(out.end(), from, from + width);
    }
  return out;
}

std::vector<float> rounded(std::vector<float> values, DType type) {
  if (type == DType::bfloat16)
    for (auto& value : values) {
      std::uint32_t bits;
      std::memcpy(&bits, &value, sizeof bits);
      bits &= 0xffff0000U;
      std::memcpy(&value, &bits, sizeof bits);
    }
  return values;
}

/// The result, and the gradient of the projection, of an attention on one rank or on this one of several.
struct Outcome {
  std::vector<float> y, dx, dsinks;
};

Outcome run(DType type, const Drawn& d, const kernels::AttentionExtents& e, std::vector<float> x,
            const std::vector<float>& dy, const ContextParallelAttention* core, const ProcessGroups& groups) {
  Work work;
  work.tape.computes_in(type);
  nn::Pass pass;
  pass.B = e.B;
  pass.T = e.T;
  pass.S = d.e.S;
  pass.core = core;
  pass.groups = &groups;
  const auto input = work.tape.input(Tensor(std::span(x), {e.B, e.T, e.q.row_stride}), true);
  autograd::Var qkv = input;
  std::vector<std::byte> halves;
  if (type != DType::float32) {  // as a projection that was computed in 16 bits
    halves.resize(x.size() * size_of(type));
    const Tensor stored(halves, type, {e.B, e.T, e.q.row_stride});
    qkv = work.tape.input(stored, true);
    std::copy(x.begin(), x.end(), work.tape.write(qkv).span().begin());
  }
  Outcome out;
  auto values = d.sinks;
  autograd::Leaf sinks;
  out.dsinks.assign(values.size(), 0);
  if (!values.empty()) {
    sinks.value = Tensor(std::span(values), {e.H});
    sinks.bind_grad(Tensor(std::span(out.dsinks), {e.H}));
  }
  const auto y = nn::core_attention(qkv, e, d.visible(), d.mask(), 0, pass, {values.empty() ? nullptr : &sinks, 0});
  {
    const auto floats = work.tape.read(y);
    out.y.assign(floats.span().begin(), floats.span().end());
  }
  auto slope = dy;
  const auto seeds = work.tape.make(type, y.shape(), false);
  std::copy(slope.begin(), slope.end(), work.tape.write(seeds).span().begin());
  work.tape.seed(y, seeds.value());
  work.tape.backward();
  const auto dx = work.tape.take_grad(qkv);
  const auto floats = work.tape.read(dx.tensor);
  out.dx.assign(floats.span().begin(), floats.span().end());
  return out;
}

void expect_within(const std::vector<float>& got, const std::vector<float>& expected, float tolerance,
                   const std::string& what) {
  ASSERT_EQ(got.size(), expected.size()) << what;
  float most = 1e-3F;
  for (const auto value : expected) most = std::max(most, std::abs(value));
  for (std::size_t i = 0; i < got.size(); ++i)
    ASSERT_NEAR(got[i], expected[i], tolerance * most) << what << ", element " << i;
}

class SharedSequence : public testing::TestWithParam<Exchange> {};

TEST_P(SharedSequence, AttentionGivesWhatOneRankComputes) {
  const auto& exchange = GetParam();
  MeshSizes sizes;
  sizes.context = exchange.ranks;
  sizes.context_heads = exchange.kind == ContextExchange::a2a_p2p ? exchange.heads : 1;
  sizes.data = world().size() / exchange.ranks;
  const ProcessGroups groups(world(), Mesh(sizes), 1);
  const ContextLayout layout{{groups.context.rank(), exchange.ranks, exchange.contiguous}, {exchange.kind}};
  const ContextParallelAttention core(layout);
  // All ranks draw the same: the first one's seed.
  const auto seed = std::stoull(world().all().broadcast(std::to_string(std::random_device()()), 0, "seed"));
  for (unsigned trial = 0; trial < 8; ++trial) {
    const Drawn d(seed + trial, exchange.ranks);
    const auto type = trial % 4 == 3 ? DType::bfloat16 : DType::float32;
    const auto name = text("seed ", seed, ", trial ", trial, ", B ", d.e.B, " S ", d.e.S, " H ", d.e.H, " G ", d.e.G,
                           " D ", d.e.D, " rate ", d.rate);
    const auto x = rounded(made(d.e.B * d.e.S * d.e.q.row_stride, 1), type);
    const auto dy = rounded(made(d.e.B * d.e.S * d.e.H * d.e.D, 2), type);
    const auto alone = run(type, d, d.e, x, dy, nullptr, groups);
    const auto part = [&](const std::vector<float>& all, std::int64_t width) {
      return held(all, layout.rank, d.e.B, d.e.S, width);
    };
    auto here = d.e;
    here.T = here.S = d.e.S / exchange.ranks;
    const auto row = d.e.q.row_stride, out = d.e.H * d.e.D;
    const auto shared = run(type, d, here, part(x, row), part(dy, out), &core, groups);
    // Of 30,000 comparisons in fp32 the farthest was 4.6e-6 of the largest value away, half of them 2e-7: the softmax
    // amplifies what other sums of a score round. In bf16 they are at most one rounding, 2^-7, away.
    const float tolerance = type == DType::float32 ? 2e-5F : 0.012F;
    expect_within(shared.y, part(alone.y, out), tolerance, name + ", result");
    expect_within(shared.dx, part(alone.dx, row), tolerance, name + ", gradient");
    auto dsinks = shared.dsinks;
    groups.context.all_reduce(std::span(dsinks), "gradients of sinks");
    expect_within(dsinks, alone.dsinks, 4 * tolerance, name + ", gradient of the sinks");
  }
}

using Pairs = std::multiset<std::pair<std::int64_t, std::int64_t>>;

/// The pairs of chunks in which a query of this rank sees a key, sample by sample.
Pairs pairs_seen(const Drawn& d, const nn::ContextRank& rank) {
  Pairs seen;
  const auto chunk = d.e.S / (2 * rank.ranks);
  for (std::int64_t b = 0; b < d.e.B; ++b)
    for (std::int64_t i = 0; i < 2 * rank.ranks; ++i)
      for (std::int64_t k = 0; k < d.e.S; k += chunk) {
        const auto query = i * chunk;
        if (i != rank.rank && i != 2 * rank.ranks - 1 - rank.rank) continue;
        const auto sees = [&](std::int64_t row) {
          const auto at = static_cast<std::size_t>(b * d.e.S + row);
          return d.first[at] <= d.last[at] && d.first[at] < k + chunk && d.last[at] >= k;
        };
        std::int64_t rows = 0;
        for (auto row = query; row < query + chunk; ++row) rows += sees(row) ? 1 : 0;
        if (rows > 0) seen.emplace(query, k);
      }
  return seen;
}

TEST(SharedBlocks, ThoseThatNobodySeesAreNotComputed) {
  const auto& group = world().all();
  const nn::ContextRank rank{group.rank(), group.size()};
  const auto seed = std::stoull(group.broadcast(std::to_string(std::random_device()()), 0, "seed"));
  std::size_t left_out = 0;
  for (unsigned kind = 0; kind < 4; ++kind) {
    Drawn d(seed + kind, group.size());
    d.first.clear();
    d.last.clear();
    d.among.clear();
    d.see(kind, 1 + d.e.S / 5);
    const auto name = text("seed ", seed, ", kind ", kind, ", B ", d.e.B, " S ", d.e.S);
    auto here = d.e;
    here.T = here.S = d.e.S / group.size();
    const auto expected = pairs_seen(d, rank);
    left_out += static_cast<std::size_t>(d.e.B * 4 * group.size()) - expected.size();
    for (const auto exchange : {BlockExchange::ring, BlockExchange::gather}) {
      Pairs computed;
      Work work;
      auto x = made(here.B * here.T * here.q.row_stride, 1);
      const auto input = work.input(x, {here.B, here.T, here.q.row_stride});
      const auto y = block_attention(input, here, d.visible(), d.mask(), group, exchange, {},
                                     [&](std::int64_t query, std::int64_t key) { computed.emplace(query, key); });
      EXPECT_EQ(computed, expected) << name << ", forward pass";
      computed.clear();
      work.backward(y, made(here.B * here.T * here.H * here.D, 2), input);
      EXPECT_EQ(computed, expected) << name << ", backward pass";
    }
  }
  EXPECT_GT(left_out, 0U) << "seed " << seed;
}

INSTANTIATE_TEST_SUITE_P(
    Exchanges, SharedSequence,
    testing::Values(Exchange{ContextExchange::p2p, 2, 1}, Exchange{ContextExchange::p2p, 4, 1},
                    Exchange{ContextExchange::p2p, 8, 1}, Exchange{ContextExchange::all_gather, 2, 1},
                    Exchange{ContextExchange::all_gather, 8, 1}, Exchange{ContextExchange::a2a, 2, 2, true},
                    Exchange{ContextExchange::a2a, 4, 4}, Exchange{ContextExchange::a2a, 8, 8, true},
                    Exchange{ContextExchange::a2a_p2p, 4, 2}, Exchange{ContextExchange::a2a_p2p, 8, 2},
                    Exchange{ContextExchange::a2a_p2p, 8, 4}));

}  // namespace
}  // namespace tessera::parallel
