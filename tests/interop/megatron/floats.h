#pragma once

#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "framework/base/error.h"
#include "framework/base/files.h"
#include "framework/checkpoint/weight_source.h"

namespace tessera {

/// All elements of a tensor of a source.
inline std::vector<float> floats(const checkpoint::WeightSource& source, const std::string& name) {
  std::vector<float> out(static_cast<std::size_t>(source.shape(name).elements()));
  source.read(name, Tensor(std::span(out), source.shape(name)));
  return out;
}

/// Compares with a sums.json, of each tensor its sum and one weighted by place, computed without this program. Returns
/// what differs, and in `tensors` how many were compared.
inline std::string differing_sums(const checkpoint::WeightSource& source, const std::filesystem::path& file,
                                  std::size_t& tensors) {
  const auto sums = nlohmann::json::parse(read_file(file));
  tensors = sums.size();
  std::string all;
  for (const auto& [name, expected] : sums.items()) {
    if (!source.has(name)) {
      all += text(name, " is missing\n");
      continue;
    }
    const auto values = floats(source, name);
    double sum = 0, size = 0, placed = 0, placed_size = 0;
    for (std::size_t i = 0; i < values.size(); ++i) {
      const auto weight = static_cast<double>(i * 2654435761U % 1000);
      sum += values[i], size += std::abs(values[i]);
      placed += values[i] * weight, placed_size += std::abs(values[i] * weight);
    }
    if (std::abs(sum - expected[0].get<double>()) > 1e-12 * size ||
        std::abs(placed - expected[1].get<double>()) > 1e-12 * placed_size)
      all += text(name, " has sums ", sum, " and ", placed, "\n");
  }
  return all;
}

}  // namespace tessera
