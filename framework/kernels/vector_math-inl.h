// Elementary functions on Highway vectors of float, compiled once for each instruction set. Include after
// hwy/highway.h, outside any namespace. NaN propagates; a result that would be denormal is exactly 0, because all
// threads flush denormals. The polynomials are minimax fits made for this file. The stated error is the error of the
// whole function in float arithmetic against the exact value.

#if defined(TESSERA_KERNELS_VECTOR_MATH_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TESSERA_KERNELS_VECTOR_MATH_INL_H_
#undef TESSERA_KERNELS_VECTOR_MATH_INL_H_
#else
#define TESSERA_KERNELS_VECTOR_MATH_INL_H_
#endif

#include <hwy/highway.h>

#include <cstddef>
#include <cstdint>

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels {
namespace HWY_NAMESPACE {
namespace math {

namespace hn = hwy::HWY_NAMESPACE;

/// c[0] + c[1] x + c[2] x^2 + ..., by Horner's rule.
template <class V, class D>
HWY_INLINE V Polynomial(D d, V x, const float* c, int count) {
  V sum = hn::Set(d, c[count - 1]);
  for (int i = count - 2; i >= 0; --i) sum = hn::MulAdd(sum, x, hn::Set(d, c[i]));
  return sum;
}

/// 1.5 * 2^23 + 127. Adding it to x in [-127, 128] rounds x to an integer n and leaves n + 127, the biased exponent of
/// 2^n, in the lowest bits of the sum.
constexpr float round_to_exponent = 12583039.0F;

/// 2^n from the sum x + round_to_exponent; 0 for n = -127, infinity for n = 128.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V PowerOfTwo(D d, V rounded) {
  const hn::RebindToSigned<D> bits;
  return hn::BitCast(d, hn::ShiftLeft<23>(hn::BitCast(bits, rounded)));
}

/// max(least, x), but NaN for x = NaN: on x86, Max returns its second operand if either is NaN, so x is the second.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V NotBelow(D d, float least, V x) {
#if HWY_TARGET == HWY_SCALAR
  return hn::IfThenElse(hn::Lt(x, hn::Set(d, least)), hn::Set(d, least), x);
#else
  return hn::Max(hn::Set(d, least), x);  // returns the second operand if either is NaN
#endif
}

/// min(most, x), but NaN for x = NaN, as in NotBelow.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V NotAbove(D d, float most, V x) {
#if HWY_TARGET == HWY_SCALAR
  return hn::IfThenElse(hn::Gt(x, hn::Set(d, most)), hn::Set(d, most), x);
#else
  return hn::Min(hn::Set(d, most), x);
#endif
}

/// 2^x for x <= 0, relative error 1.2e-7; exactly 0 below -126.5.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V Exp2OfNegative(D d, V x) {
  constexpr float c[] = {1.0F,
                         0.693147205737F,
                         0.240226468904F,
                         0.055503287768F,
                         0.00961848896461F,
                         0.00133999313918F,
                         0.000153458117991F};
  const V t = NotBelow(d, -127.0F, x);
  const V rounded = hn::Add(t, hn::Set(d, round_to_exponent));
  const V rest = hn::Sub(t, hn::Sub(rounded, hn::Set(d, round_to_exponent)));
  return hn::Mul(Polynomial(d, rest, c, 7), PowerOfTwo(d, rounded));
}

/// e^x, relative error 1.2e-7; exactly 0 below -87.7, infinity above 88.4.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V Exp(D d, V x) {
  constexpr float c[] = {
      1.0F, 1.00000003632F, 0.499999920794F, 0.166664201693F, 0.041668225602F, 0.00837481591228F, 0.00138368458103F};
  const V t = NotAbove(d, 88.7F, NotBelow(d, -88.02F, x));
  const V rounded = hn::MulAdd(t, hn::Set(d, 1.44269504F), hn::Set(d, round_to_exponent));
  const V n = hn::Sub(rounded, hn::Set(d, round_to_exponent));
  V rest = hn::NegMulAdd(n, hn::Set(d, 0.693359375F), t);  // ln 2 = 0.693359375 - 2.12194440e-4
  rest = hn::MulAdd(n, hn::Set(d, 2.12194440e-4F), rest);
  return hn::Mul(Polynomial(d, rest, c, 7), PowerOfTwo(d, rounded));
}

/// 1 / (1 + e^-x), relative error 2e-7.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V Sigmoid(D d, V x) {
  const V one = hn::Set(d, 1.0F);
  return hn::Div(one, hn::Add(one, Exp(d, hn::Neg(x))));
}

/// tanh x, relative error 2e-7. An odd polynomial below 0.65, where 1 - 2 / (e^2x + 1) would cancel.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V Tanh(D d, V x) {
  constexpr float c[] = {-0.333333331F, 0.133332907F,    -0.0539563494F,
                         0.021746187F,  -0.00827245664F, 0.00221490267F};  // tanh x = x + x^3 c(x^2) up to 0.65
  const V one = hn::Set(d, 1.0F), square = hn::Mul(x, x);
  const V near = hn::MulAdd(hn::Mul(x, square), Polynomial(d, square, c, 6), x);
  const V power = Exp(d, hn::Add(hn::Abs(x), hn::Abs(x)));
  const V far = hn::CopySign(hn::Sub(one, hn::Div(hn::Set(d, 2.0F), hn::Add(power, one))), x);
  return hn::IfThenElse(hn::Lt(hn::Abs(x), hn::Set(d, 0.65F)), near, far);
}

/// ln x for positive normal x; error 1e-7 of max(1, |ln x|).
template <class D, class V = hn::Vec<D>>
HWY_INLINE V Log(D d, V x) {
  const hn::RebindToSigned<D> di;
  // x = 2^n m with m in [sqrt(1/2), sqrt(2)); ln m = 2 artanh(s), s = (m - 1) / (m + 1)
  const auto shifted = hn::Sub(hn::BitCast(di, x), hn::Set(di, 0x3f3504f3));
  const auto n = hn::ConvertTo(d, hn::ShiftRight<23>(shifted));
  const auto fraction = hn::And(shifted, hn::Set(di, 0x7fffff));
  const V m = hn::BitCast(d, hn::Add(fraction, hn::Set(di, 0x3f3504f3)));
  const V one = hn::Set(d, 1.0F);
  const V s = hn::Div(hn::Sub(m, one), hn::Add(m, one)), s2 = hn::Mul(s, s);
  constexpr float c[] = {2.0F, 2.0F / 3, 2.0F / 5, 2.0F / 7, 2.0F / 9};
  return hn::MulAdd(n, hn::Set(d, 0.693147181F), hn::Mul(s, Polynomial(d, s2, c, 5)));
}

/// `below` is the cumulative distribution function of the standard normal distribution, 0.5 (1 + erf(x / sqrt 2));
/// `bell` is e^(-x^2 / 2), from which its derivative is computed. Errors 1.5e-7.
template <class V>
struct Normal {
  V below, bell;
};

template <class D, class V = hn::Vec<D>>
HWY_INLINE Normal<V> NormalOf(D d, V x) {
  // erfc(z) = t g(t) e^(-z^2), t = 1 / (1 + 0.4 z), for z = |x| / sqrt 2 >= 0
  constexpr float g[] = {0.225706908289F,  0.224952041778F, 0.214918921873F,  0.129680494732F, 0.272063484621F,
                         -0.284361251965F, 0.547428540027F, -0.498806050757F, 0.198010790791F, -0.0295938715589F};
  const V one = hn::Set(d, 1.0F);
  const V bell = Exp(d, hn::Mul(hn::Mul(x, x), hn::Set(d, -0.5F)));
  const V t = hn::Div(one, hn::MulAdd(hn::Abs(x), hn::Set(d, 0.282842712F), one));
  const V tail = hn::Mul(hn::Mul(t, hn::Set(d, 0.5F)), hn::Mul(Polynomial(d, t, g, 10), bell));
  const V below = hn::IfThenElse(hn::Lt(x, hn::Zero(d)), tail, hn::Sub(one, tail));
  return {below, bell};
}

}  // namespace math
}  // namespace HWY_NAMESPACE
}  // namespace tessera::kernels
HWY_AFTER_NAMESPACE();

#endif
