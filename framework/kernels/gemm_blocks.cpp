#include "framework/kernels/gemm_blocks.h"

#include <algorithm>
#include <fstream>

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

}  // namespace

std::int64_t l2_bytes(const std::string& folder) {
  constexpr int most = 8;  // caches of a core; Linux numbers them from 0 without gaps
  for (int i = 0; i < most; ++i) {
    const std::string cache = folder + "/index" + std::to_string(i) + "/";
    const auto type = word_in(cache + "type");
    const auto bytes = bytes_of(word_in(cache + "size"));
    if (bytes > 0 && (type == "Data" || type == "Unified") && word_in(cache + "level") == "2") return bytes;
  }
  return 512 << 10;
}

TileKernels fitted_to(const TileKernels& kernels, std::int64_t l2) {
  constexpr std::int64_t most_strip_rows = 192;
  TileKernels t = kernels;
  const std::int64_t row = t.depth * static_cast<std::int64_t>(sizeof(float));
  t.strip_rows = std::clamp(l2 / 4 / row, t.rows, most_strip_rows) / t.rows * t.rows;
  t.narrow = t.cols * t.panels;
  t.panels = std::clamp(l2 * 3 / 8 / (row * t.cols), std::int64_t{1}, t.panels);
  return t;
}

}  // namespace tessera::kernels
