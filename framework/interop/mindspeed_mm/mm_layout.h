#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "framework/options/report.h"
#include "framework/options/value.h"

namespace tessera::mindspeed_mm {

/// Number of layers of one tower on each pipeline stage. In options a list with the stages, [10, 10, 8], or with
/// virtual stages a list of such lists, [[3, 3], [4, 0]]: [chunk][stage], the other way round than in our recipes.
struct StageLayers {
  std::vector<std::vector<std::int64_t>> chunks;  ///< [chunk][stage]

  std::int64_t sum() const;
  bool operator==(const StageLayers&) const = default;

  /// How the option is read, written and described (options/option_type.h).
  struct Option {
    using Item = std::int64_t;
    static bool each(const StageLayers& layers, const auto& holds) {
      for (const auto& chunk : layers.chunks)
        for (const auto count : chunk)
          if (!holds(count)) return false;
      return true;
    }
    static std::string name() { return "list of int, or of such lists"; }
    static bool read(const options::Value& value, StageLayers& out);
    static options::Value write(const StageLayers& layers);
  };
};

/// The chunk of a pipeline stage.
struct MmPlace {
  std::size_t chunk = 0, stage = 0;
  bool operator==(const MmPlace&) const = default;
};

/// The division of a model of several towers over the ranks of MindSpeed-MM. The forward pass goes through chunk 0 of
/// all stages, then chunk 1, and so on; in a chunk, the layers of a tower follow those of the towers before it.
struct MmLayout {
  std::int64_t tensor_parallel = 1;
  std::vector<StageLayers> towers;  ///< in the order of the forward pass; all have the same chunks and stages

  std::size_t chunks() const { return towers.at(0).chunks.size(); }
  std::size_t stages() const { return towers.at(0).chunks.at(0).size(); }
  std::int64_t layers(std::size_t tower, const MmPlace& place) const {
    return towers.at(tower).chunks.at(place.chunk).at(place.stage);
  }
  /// All places, in the order of the forward pass.
  std::vector<MmPlace> places() const;
  /// Number of layers of the tower before `place`.
  std::int64_t layers_before(std::size_t tower, const MmPlace& place) const;
  /// The places of the first and last layer of a tower, which must have layers.
  MmPlace first(std::size_t tower) const;
  MmPlace last(std::size_t tower) const;

  bool operator==(const MmLayout&) const = default;
};

/// The mistakes of a layout: lists of different lengths, a tower without layers, a layer before one of an earlier
/// tower. `names`: those of the towers' options.
std::vector<options::Finding> mistakes(const MmLayout& layout, const std::vector<std::string>& names);

/// "[[1, 10, 10, 7]]"
std::string words(const StageLayers& layers);

}  // namespace tessera::mindspeed_mm
