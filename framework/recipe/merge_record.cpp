#include "framework/recipe/merge_record.h"

#include <algorithm>
#include <cstddef>
#include <sstream>
#include <vector>

#include "framework/base/crc32c.h"
#include "framework/base/error.h"

namespace tessera::recipe {
namespace {

/// The record, under whatever name a format carries it along; empty: there is none.
std::string record_in(const checkpoint::Blobs& blobs) {
  for (const auto& [name, content] : blobs)
    if (name.ends_with(merged_record)) return content;
  return "";
}

}  // namespace

std::string checksum_of(const checkpoint::WeightSource& adapter) {
  auto names = adapter.names();
  std::sort(names.begin(), names.end());
  std::uint32_t sum = 0;
  for (const auto& name : names) {
    const auto shape = adapter.shape(name);
    std::vector<float> elements(static_cast<std::size_t>(shape.elements()));
    adapter.read(name, Tensor(std::span(elements), shape));
    sum = crc32c(text(name, shape), sum);
    sum = crc32c(std::as_bytes(std::span(elements)), sum);
  }
  return crc_text(sum);
}

std::string record_with(const checkpoint::Blobs& blobs, const checkpoint::WeightSource& adapter) {
  return record_in(blobs) + text(checksum_of(adapter), " ", adapter.folder().string(), "\n");
}

std::optional<std::string> merged_before(const checkpoint::Blobs& blobs, const checkpoint::WeightSource& adapter) {
  const auto record = record_in(blobs);
  if (record.empty()) return std::nullopt;
  const auto own = checksum_of(adapter);
  std::istringstream lines(record);
  for (std::string line; std::getline(lines, line);)
    if (line.starts_with(own)) return line;
  return std::nullopt;
}

}  // namespace tessera::recipe
