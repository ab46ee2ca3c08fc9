#include "framework/kernels/nf4.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>

#include "framework/base/error.h"
#include "framework/kernels/type_conversion.h"

namespace tessera::kernels {
namespace {

constexpr std::array<float, 16> values_of_codes = {-1.0F,
                                                   -0.6961928009986877F,
                                                   -0.5250730514526367F,
                                                   -0.39491748809814453F,
                                                   -0.28444138169288635F,
                                                   -0.18477343022823334F,
                                                   -0.09105003625154495F,
                                                   0.0F,
                                                   0.07958029955625534F,
                                                   0.16093020141124725F,
                                                   0.24611230194568634F,
                                                   0.33791524171829224F,
                                                   0.44070982933044434F,
                                                   0.5626170039176941F,
                                                   0.7229568362236023F,
                                                   1.0F};

/// The floats half way between neighbours.
template <std::size_t count>
std::array<float, count - 1> middles_of(const std::array<float, count>& values) {
  std::array<float, count - 1> middles;
  for (std::size_t i = 0; i + 1 < count; ++i) middles[i] = (values[i] + values[i + 1]) / 2;
  return middles;
}

/// The values of both codes of a byte, so that one look-up gives two elements.
std::array<std::array<float, 2>, 256> values_of_bytes() {
  std::array<std::array<float, 2>, 256> pairs;
  for (std::size_t byte = 0; byte < pairs.size(); ++byte)
    pairs[byte] = {values_of_codes[byte >> 4], values_of_codes[byte & 15]};
  return pairs;
}

/// For each exponent 2^i points between 10^(i - 7) and 10^(i - 6), and their negatives; 0 and 1. In the float
/// operations of PyTorch's linspace.
std::array<float, 256> make_dynamic_values() {
  std::vector<float> all = {0, 1};
  for (int i = 0; i < 7; ++i) {
    const int points = 1 << i;
    const float from = 0.1F, step = (1 - from) / static_cast<float>(points);
    const auto bound = [&](int j) {
      return static_cast<float>(j < (points + 1) / 2 ? double{from} + double{step} * j
                                                     : 1 - double{step} * (points - j));
    };
    for (int j = 0; j < points; ++j) {
      const float value = static_cast<float>(std::pow(10.0, i - 6)) * ((bound(j) + bound(j + 1)) / 2);
      all.insert(all.end(), {value, -value});
    }
  }
  std::sort(all.begin(), all.end());
  std::array<float, 256> out;
  must(all.size() == out.size(), "8-bit codes have 256 values");
  std::copy(all.begin(), all.end(), out.begin());
  return out;
}

template <std::size_t count>
std::uint8_t nearest(const std::array<float, count>& middles, float x) {
  return static_cast<std::uint8_t>(std::lower_bound(middles.begin(), middles.end(), x) - middles.begin());
}

/// nearest() of x * factor for a block, as the number of middles below it: without branches, so that it is vectorised.
void nearest_of_block(const std::array<float, 15>& middles, std::span<const float> x, float factor,
                      std::array<std::uint8_t, static_cast<std::size_t>(nf4_block)>& codes) {
  for (std::size_t i = 0; i < x.size(); ++i) {
    const float scaled = x[i] * factor;
    std::int32_t below = 0;
    for (const float middle : middles) below += middle < scaled ? 1 : 0;
    codes[i] = static_cast<std::uint8_t>(below);
  }
}

/// The 8-bit code of x in [-1, 1] is that of the nearest of 65536 points, as in bitsandbytes on CPUs.
std::uint8_t dynamic_code(float x) {
  static const auto middles = middles_of(dynamic_values());
  constexpr double last = 65535;
  const double bin = std::floor((double{x} + 1) * 0.5 * last + 0.5);
  return nearest(middles, static_cast<float>(-1 + 2 * bin / last));
}

/// Compared as bits: a thread may be set to treat subnormal numbers as zeros.
float largest_of(std::span<const float> x) {
  std::uint32_t most = 0;
  for (const auto value : x) most = std::max(most, std::bit_cast<std::uint32_t>(value) & 0x7fffffffU);
  return std::bit_cast<float>(most);
}

bool is_normal(float x) { return std::bit_cast<std::uint32_t>(x) >= 0x00800000U; }

/// PyTorch's sum of contiguous floats on one thread (aten SumKernel, vectors of 8): four partial sums of vectors, each
/// over levels of blocks; then the vectors that are left, and the elements that fill no vector.
class CascadeSum {
 public:
  explicit CascadeSum(std::span<const float> x) : x_(x) {
    const auto vectors = x.size() / lanes, rounds = vectors / rows;
    const auto power = std::max(
        std::size_t{4}, static_cast<std::size_t>(std::bit_width(std::max(rounds, std::size_t{2}) - 1)) / levels);
    const auto step = std::size_t{1} << power, mask = step - 1;
    std::size_t i = 0;
    while (i + step <= rounds) {
      for (const auto end = i + step; i < end; ++i) add_round(i);
      for (std::size_t level = 1; level < levels; ++level) {
        carry(level);
        if ((i & (mask << (level * power))) != 0) break;
      }
    }
    for (; i < rounds; ++i) add_round(i);
    for (std::size_t level = 1; level < levels; ++level)
      for (std::size_t row = 0; row < rows; ++row) add(sums_[0][row], sums_[level][row]);
    for (auto vector = rounds * rows; vector < vectors; ++vector) add(sums_[0][0], at(vector));
    for (std::size_t row = 1; row < rows; ++row) add(sums_[0][0], sums_[0][row]);
    for (auto k = vectors * lanes; k < x.size(); ++k) total_ += x[k];
    for (const auto lane : sums_[0][0]) total_ += lane;
  }
  float total() const { return total_; }

 private:
  static constexpr std::size_t lanes = 8, rows = 4, levels = 4;
  using Vector = std::array<float, lanes>;

  Vector at(std::size_t vector) const {
    Vector out;
    std::copy_n(x_.begin() + static_cast<std::ptrdiff_t>(vector * lanes), lanes, out.begin());
    return out;
  }
  static void add(Vector& to, const Vector& more) {
    for (std::size_t i = 0; i < lanes; ++i) to[i] += more[i];
  }
  void add_round(std::size_t round) {
    for (std::size_t row = 0; row < rows; ++row) add(sums_[0][row], at(round * rows + row));
  }
  void carry(std::size_t level) {
    for (std::size_t row = 0; row < rows; ++row) {
      add(sums_[level][row], sums_[level - 1][row]);
      sums_[level - 1][row] = {};
    }
  }

  std::span<const float> x_;
  std::array<std::array<Vector, rows>, levels> sums_ = {};
  float total_ = 0;
};

class Nf4Array final : public PackedArray {
 public:
  explicit Nf4Array(const Nf4Parts& parts) : parts_(parts) {}
  std::string_view storage_type() const override { return "nf4"; }
  std::int64_t size() const override { return parts_.size; }
  std::int64_t bytes() const override {
    return static_cast<std::int64_t>(parts_.codes.size_bytes() + parts_.maxima.size_bytes() +
                                     parts_.nested_codes.size_bytes());
  }
  void unpack(std::int64_t first, std::span<float> out) const override {
    const auto end = first + static_cast<std::int64_t>(out.size());
    float* to = out.data();
    for (auto at = first; at < end;) {
      const auto block = at / nf4_block, stop = std::min(end, (block + 1) * nf4_block);
      unpack_block(at, stop, maximum(block), to);
      to += stop - at;
      at = stop;
    }
    if (parts_.type != DType::float32) round(out);
  }

 private:
  float maximum(std::int64_t block) const {
    const auto i = static_cast<std::size_t>(block);
    if (parts_.nested_codes.empty()) return parts_.maxima[i];
    return dynamic_values()[parts_.nested_codes[i]] * parts_.maxima[i / static_cast<std::size_t>(nf4_nested_block)] +
           parts_.offset;
  }

  /// Elements [at, stop) of one block.
  void unpack_block(std::int64_t at, std::int64_t stop, float scale, float* to) const {
    static const auto pairs = values_of_bytes();
    const auto* codes = parts_.codes.data();
    if (at % 2 != 0) *to++ = values_of_codes[codes[at++ / 2] & 15] * scale;
    for (; at + 2 <= stop; at += 2, to += 2) {
      const auto& pair = pairs[codes[at / 2]];
      to[0] = pair[0] * scale;
      to[1] = pair[1] * scale;
    }
    if (at < stop) *to = values_of_codes[codes[at / 2] >> 4] * scale;
  }

  void round(std::span<float> out) const {
    std::array<std::byte, 2 * nf4_block> memory;
    for (; !out.empty(); out = out.subspan(std::min<std::size_t>(out.size(), nf4_block))) {
      const auto some = out.first(std::min<std::size_t>(out.size(), nf4_block));
      const MutableElements rounded(memory.data(), some.size(), parts_.type);
      narrow_range(some, rounded);
      widen_range(rounded, some);
    }
  }

  Nf4Parts parts_;
};

}  // namespace

const std::array<float, 16>& nf4_values() { return values_of_codes; }

const std::array<float, 256>& dynamic_values() {
  static const auto values = make_dynamic_values();
  return values;
}

void nf4_quantise(std::span<const float> x, std::span<std::uint8_t> codes, std::span<float> maxima) {
  static const auto middles = middles_of(values_of_codes);
  constexpr auto block = static_cast<std::size_t>(nf4_block);
  must(codes.size() == static_cast<std::size_t>(nf4_bytes(static_cast<std::int64_t>(x.size()))) &&
           maxima.size() == static_cast<std::size_t>(nf4_blocks(static_cast<std::int64_t>(x.size()))),
       "codes and maxima have the sizes that the elements need");
  std::array<std::uint8_t, block> of_block;
  for (std::size_t i = 0; i < maxima.size(); ++i) {
    const auto some = x.subspan(i * block, std::min(block, x.size() - i * block));
    maxima[i] = largest_of(some);
    const float factor = is_normal(maxima[i]) ? 1 / maxima[i] : 0;  // else all codes are 7
    nearest_of_block(middles, some, factor, of_block);
    if (some.size() % 2 != 0) of_block[some.size()] = 7;
    auto* to = codes.data() + i * block / 2;
    for (std::size_t k = 0; k < some.size(); k += 2)
      to[k / 2] = static_cast<std::uint8_t>(of_block[k] << 4 | of_block[k + 1]);
  }
}

NestedMaxima nf4_nest(std::span<const float> maxima) {
  constexpr auto block = static_cast<std::size_t>(nf4_nested_block);
  NestedMaxima out;
  if (maxima.empty()) return out;
  out.offset = CascadeSum(maxima).total() / static_cast<float>(maxima.size());
  std::vector<float> centred(maxima.begin(), maxima.end());
  for (auto& value : centred) value -= out.offset;
  for (std::size_t first = 0; first < centred.size(); first += block) {
    const auto some = std::span(centred).subspan(first, std::min(block, centred.size() - first));
    const auto most = out.maxima.emplace_back(largest_of(some));
    for (const auto value : some) out.codes.push_back(most == 0 ? 0 : dynamic_code(value * (1 / most)));
  }
  return out;
}

std::shared_ptr<const PackedArray> nf4_array(const Nf4Parts& parts) {
  const auto blocks = nf4_blocks(parts.size);
  const bool nested = !parts.nested_codes.empty();
  const auto expect = [&](const char* what, std::size_t got, std::int64_t wanted) {
    if (got != static_cast<std::size_t>(wanted))
      throw ConfigError(text(parts.size, " elements in NF4 have ", got, " ", what, "; expected ", wanted));
  };
  expect("bytes of codes", parts.codes.size(), nf4_bytes(parts.size));
  if (nested) expect("8-bit maxima", parts.nested_codes.size(), blocks);
  expect("maxima", parts.maxima.size(), nested ? (blocks + nf4_nested_block - 1) / nf4_nested_block : blocks);
  if (parts.type != DType::float32 && parts.type != DType::bfloat16 && parts.type != DType::float16)
    throw ConfigError(text("values in NF4 are float32, bfloat16 or float16, not ", name_of(parts.type)));
  return std::make_shared<const Nf4Array>(parts);
}

}  // namespace tessera::kernels
