#include "framework/kernels/gemm_blocks.h"

#include <algorithm>
#include <fstream>
#include <numeric>

namespace tessera::kernels {
namespace {

/// The first word of a file; empty if there is none.
std::string word_in(const std::string& path) {
  std::ifstream file(path);
  std::string word;
  file >> word;
  return word;
}

/// Bytes of "48K" or "2M"; 0 if `text` is no such size.
std::int64_t bytes_of(const std::string& text) {
  std::int64_t value = 0;
  std::size_t at = 0;
  for (; at < text.size() && at < 9 && text[at] >= '0' && text[at] <= '9'; ++at) value = 10 * value + (text[at] - '0');
  const std::string unit = text.substr(at);
  return unit == "K" ? value << 10 : unit == "M" ? value << 20 : unit.empty() ? value : 0;
}

constexpr std::int64_t l2_ways = 8;  // of processors with less than 1 MiB: Zen 1 to 3, Haswell, Broadwell

}  // namespace

CacheSizes cache_sizes(const std::string& folder) {
  constexpr int most = 8;  // caches of a core; Linux numbers them from 0 without gaps
  CacheSizes sizes;
  for (int i = 0; i < most; ++i) {
    const std::string cache = folder + "/index" + std::to_string(i) + "/";
    const auto level = word_in(cache + "level"), type = word_in(cache + "type");
    const auto bytes = bytes_of(word_in(cache + "size"));
    if (bytes == 0 || (type != "Data" && type != "Unified")) continue;
    if (level == "1") sizes.l1 = bytes;
    if (level == "2") sizes.l2 = bytes;
  }
  return sizes;
}

TileKernels fitted_to(const TileKernels& kernels, const CacheSizes& caches) {
  constexpr std::int64_t large_l2 = 1 << 20, most_strip_rows = 192;
  TileKernels t = kernels;
  const std::int64_t row = t.depth * static_cast<std::int64_t>(sizeof(float)), panel = row * t.cols;
  if (panel > caches.l1 * 3 / 4) return t;
  const std::int64_t rows = std::max(std::int64_t{1}, caches.l2 / 4 / row / t.rows) * t.rows;
  t.strip_rows = std::min(rows, most_strip_rows / t.rows * t.rows);
  if (caches.l2 >= large_l2) return t;
  t.narrow = t.cols * t.panels;
  t.block_rows = rows;
  t.way = caches.l2 / l2_ways;
  t.panels = std::clamp(caches.l2 * 3 / 8 / panel, std::int64_t{1}, t.panels);
  return t;
}

std::int64_t rows_of_block(const TileKernels& t, std::int64_t stride) {
  if (t.way == 0) return t.block_rows;
  const std::int64_t row = t.depth * static_cast<std::int64_t>(sizeof(float));
  const std::int64_t places = t.way / std::max(std::gcd(stride, t.way), row);  // of a row within a way
  return std::clamp(l2_ways * 3 / 4 * places / t.rows * t.rows, t.rows, t.block_rows);
}

}  // namespace tessera::kernels
