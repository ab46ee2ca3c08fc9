// The Philox4x32-10 random generator (base/random.h) on vectors of counters, compiled once for each instruction set.
// Include after hwy/highway.h. Source: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011.

#if defined(TESSERA_KERNELS_PHILOX_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TESSERA_KERNELS_PHILOX_INL_H_
#undef TESSERA_KERNELS_PHILOX_INL_H_
#else
#define TESSERA_KERNELS_PHILOX_INL_H_
#endif

#include <hwy/highway.h>

#include <array>
#include <cstdint>

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels {
namespace HWY_NAMESPACE {
namespace philox4x32 {

namespace hn = hwy::HWY_NAMESPACE;
using DU = hn::ScalableTag<std::uint32_t>;
using VU = hn::Vec<DU>;

/// The two halves of 64-bit numbers, one number per lane.
struct HighLow {
  VU high, low;
};

/// The 64-bit products of 32-bit lanes, split into halves.
HWY_INLINE HighLow Multiply(VU x, VU by) {
  const DU d;
#if HWY_TARGET == HWY_SCALAR
  const auto product = static_cast<std::uint64_t>(hn::GetLane(x)) * hn::GetLane(by);
  return {hn::Set(d, static_cast<std::uint32_t>(product >> 32)), hn::Set(d, static_cast<std::uint32_t>(product))};
#else
  const hn::RepartitionToWide<DU> wide;
  const auto even = hn::MulEven(x, by);
  const auto odd = hn::MulEven(hn::BitCast(d, hn::ShiftRight<32>(hn::BitCast(wide, x))), by);
  return {hn::OddEven(hn::BitCast(d, odd), hn::BitCast(d, hn::ShiftRight<32>(even))),
          hn::OddEven(hn::BitCast(d, hn::ShiftLeft<32>(odd)), hn::BitCast(d, even))};
#endif
}

/// The four 32-bit words of a counter block, one block per lane.
struct Words {
  VU w0, w1, w2, w3;
};

/// The generator: one output block per lane, from the counter (c.w0, c.w1, c.w2, c.w3) under `key`. The constants are
/// those of Random123.
HWY_INLINE Words Blocks(Words c, std::array<std::uint32_t, 2> key) {
  const DU d;
  const VU m0 = hn::Set(d, 0xD2511F53U), m1 = hn::Set(d, 0xCD9E8D57U);
  std::uint32_t k0 = key[0], k1 = key[1];
  for (int round = 0; round < 10; ++round) {
    const HighLow p0 = Multiply(c.w0, m0), p1 = Multiply(c.w2, m1);
    c = {hn::Xor(hn::Xor(p1.high, c.w1), hn::Set(d, k0)), p1.low, hn::Xor(hn::Xor(p0.high, c.w3), hn::Set(d, k1)),
         p0.low};
    k0 += 0x9E3779B9U;
    k1 += 0xBB67AE85U;
  }
  return c;
}

/// Output blocks number base + ahead of stream `id`. `base` has one 64-bit block number per lane.
HWY_INLINE Words BlocksAhead(HighLow base, std::uint32_t ahead, std::uint64_t id, std::array<std::uint32_t, 2> key) {
  const DU d;
  const VU low = hn::Add(base.low, hn::Set(d, ahead));
  const VU carry = hn::VecFromMask(d, hn::Lt(low, base.low));  // all ones is -1
  return Blocks({low, hn::Sub(base.high, carry), hn::Set(d, static_cast<std::uint32_t>(id)),
                 hn::Set(d, static_cast<std::uint32_t>(id >> 32))},
                key);
}

}  // namespace philox4x32
}  // namespace HWY_NAMESPACE
}  // namespace tessera::kernels
HWY_AFTER_NAMESPACE();

#endif
