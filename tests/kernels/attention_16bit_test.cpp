// Attention whose operands are bfloat16 or float16, against plain loops in double over the rounded inputs.
#include "framework/kernels/attention_tiles.h"
#include "framework/kernels/gemm.h"
#include "framework/kernels/type_conversion.h"
#include "tests/kernels/attention_cases.h"
#include "tests/kernels/emulated_tiles.h"
#include "tests/kernels/reference.h"
#include "tests/kernels/spoiled_scratch.h"
#include "tests/kernels/typed.h"
#include "tests/sanitized.h"

namespace tessera::kernels {
namespace {

using namespace attention_cases;

std::vector<float> rounded(DType type, const std::vector<float>& values) { return Typed(type, values).now(); }

/// Makes the inputs exact in `type`.
void round_inputs(Work& work, DType type) {
  for (auto* values : {&work.q, &work.kv, &work.d_o}) *values = rounded(type, *values);
}

struct Results {
  std::vector<float> o, lse, dq, dkv, dsinks;
};

Results run(const Work& w, DType type, const TileKernels* pairs, Threads& threads) {
  spoil_scratch();
  Typed q(type, w.q), kv(type, w.kv), d_o(type, w.d_o), o(type, std::vector<float>(w.d_o.size(), 77.0F));
  Typed dq(type, std::vector<float>(w.q.size(), 55.0F)), dkv(type, std::vector<float>(w.kv.size(), 55.0F));
  std::vector<float> lse(static_cast<std::size_t>(w.c.B * w.c.H * w.c.T), 77.0F);
  attention_forward_by(
      pairs, threads, w.e, w.visible(), w.mask(),
      {.q = q.elements(), .k = kv.elements(), .v = kv.elements(), .o = o.elements(), .lse = lse, .sinks = w.sinks},
      Earlier::overwrite);
  attention_backward_by(pairs, threads, w.e, w.visible(), w.mask(),
                        {.q = q.elements(),
                         .k = kv.elements(),
                         .v = kv.elements(),
                         .o = o.elements(),
                         .lse = lse,
                         .d_o = d_o.elements(),
                         .dq = dq.elements(),
                         .dk = dkv.elements(),
                         .dv = dkv.elements()},
                        Earlier::overwrite);
  std::vector<float> dsinks(w.sinks.size(), 0.5F);
  if (w.c.sinks) attention_sinks_backward(threads, w.e, w.sinks, o.elements(), d_o.elements(), lse, dsinks);
  return {o.now(), lse, dq.now(), dkv.now(), dsinks};
}

/// |got - expected| <= unit (terms + |expected|): every term and the result are rounded to within `unit`; and the fp32
/// sums.
void expect_within(const std::vector<float>& got, const Doubles& expected, const Doubles& terms, double unit,
                   const std::string& story) {
  ASSERT_EQ(got.size(), expected.size());
  double worst = 0;
  std::size_t where = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    const double allowed = unit * (terms[i] + std::fabs(expected[i])) + 1e-5;
    const double error = std::fabs(got[i] - expected[i]) / allowed;
    if (!(error <= worst)) worst = error, where = i;
  }
  EXPECT_LE(worst, 1) << story << ": element " << where << " is " << got[where] << ", expected " << expected[where];
}

/// Half a unit in the last place is 2^-9 (bfloat16) or 2^-12 (float16) of a value; a term has up to two rounded
/// factors.
double unit_of(DType type) { return type == DType::bfloat16 ? 0x1p-8 : 0x1p-11; }

void equals_the_plain_loop(const Case& c, DType type, bool even, const TileKernels* pairs) {
  Work work(c, even);
  round_inputs(work, type);
  const Plain plain(work);
  std::ostringstream story;
  story << c << (even ? ", even strides, " : ", odd strides, ") << name_of(type);
  Threads alone(1), two(2);
  const Results got = run(work, type, pairs, alone), again = run(work, type, pairs, two);
  EXPECT_TRUE(same_bits(joined({got.o, got.lse, got.dq, got.dkv, got.dsinks}),
                        joined({again.o, again.lse, again.dq, again.dkv, again.dsinks})))
      << "one thread and two differ in bits: " << story.str();
  EXPECT_CLOSE(got.lse, plain.lse, 1e-6) << story.str();
  expect_within(got.o, plain.o, plain.sizes_of_o, unit_of(type), story.str() + ", o");
  expect_within(got.dq, plain.dq, plain.sizes_of_dq, unit_of(type), story.str() + ", dq");
  expect_within(got.dkv, plain.dkv, plain.sizes_of_dkv, unit_of(type), story.str() + ", dk and dv");
  // Of each query at most |delta|, of which the rounding of o is a part: all of them together are some tens.
  expect_within(got.dsinks, plain.dsinks, Doubles(plain.dsinks.size(), 30), unit_of(type), story.str() + ", sinks");
}

using Attention16Bit = ForEveryIsa;
FOR_EVERY_ISA(Attention16Bit);

TEST_P(Attention16Bit, EqualsThePlainLoop) {
  for (const auto type : {DType::bfloat16, DType::float16})
    for (const bool even : {false, true}) {
      for (const auto& c : part_of(cases())) equals_the_plain_loop(c, type, even, pair_tiles());
      for (const auto& c : part_of(dropped())) equals_the_plain_loop(c, type, even, pair_tiles());
    }
}

// 12 query blocks of a group: keys and values are widened for all of them together where pairs are not multiplied.
TEST_P(Attention16Bit, EqualsThePlainLoopWhereManyBlocksReadTheSameKeys) {
  for (const auto type : {DType::bfloat16, DType::float16})
    for (const bool even : {false, true})
      for (const auto see : {See::causal, See::documents}) {
        equals_the_plain_loop({2, 70, 75, 12, 2, 10, see}, type, even, nullptr);
        equals_the_plain_loop({1, 400, 400, 2, 2, 8, see, 0.1}, type, even, nullptr);
      }
}

TEST_P(Attention16Bit, ANaNInAVisibleKeyReachesTheOutput) {
  Work work({1, 70, 70, 1, 1, 8, See::causal}, true);
  work.kv[at(work.e.k, 30, 0) + 2] = NAN;
  Threads alone(1);
  const auto o = run(work, DType::bfloat16, pair_tiles(), alone).o;
  for (std::size_t t = 0; t < 70; ++t) EXPECT_EQ(std::isnan(o[t * 8]), t >= 30) << t;
}

// On machines whose processor multiplies no pairs.
TEST(AttentionOfPairs, EqualsThePlainLoopWithEmulatedTiles) {
  for (const auto* tiles : {&emulated_pairs<1>(), &emulated_pairs<4>()}) {
    for (const auto& c : part_of(cases())) equals_the_plain_loop(c, DType::bfloat16, true, tiles);
    for (const auto& c : part_of(dropped())) equals_the_plain_loop(c, DType::bfloat16, true, tiles);
  }
}

}  // namespace
}  // namespace tessera::kernels
