#include "framework/interop/flags/tower_stages.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include "framework/base/error.h"
#include "framework/options/value.h"
#include "framework/parallel/parallel_options.h"

namespace tessera::flags {
namespace {

using Counts = std::vector<std::vector<std::int64_t>>;  // [chunk][stage]

/// A list of numbers is one chunk of all stages.
Counts counts_of(const StageLayers& said) {
  parallel::ChunkNumbers numbers;
  const auto at_least_0 = [](std::int64_t count) { return count >= 0; };
  if (!parallel::ChunkNumbers::Option::read(options::Value::of("[" + said.words + "]", {}), numbers) ||
      numbers.empty() || !parallel::ChunkNumbers::Option::each(numbers, at_least_0))
    throw ConfigError(
        text(said.key, " is ", said.words, "; give a list of numbers of layers, or a list of such lists"));
  if (said.words.find('[') != std::string::npos) return numbers.stages;
  Counts counts(1);
  for (const auto& stage : numbers.stages) counts[0].push_back(stage[0]);
  return counts;
}

void check(const StageLayers& said, const Counts& counts, std::int64_t stages) {
  std::int64_t sum = 0;
  for (const auto& chunk : counts) {
    sum = std::accumulate(chunk.begin(), chunk.end(), sum);
    if (static_cast<std::int64_t>(chunk.size()) != stages)
      throw ConfigError(text(said.key, " has ", chunk.size(), " stages, but pipeline_model_parallel_size is ", stages,
                             "; give a number of layers for each stage"));
  }
  if (sum != said.layers)
    throw ConfigError(
        text(said.key, " adds up to ", sum, " layers, but num_layers is ", said.layers, "; correct one of them"));
}

/// Positions of the pipeline in the order of the forward pass.
std::vector<std::int64_t> in_order(const Counts& counts) {
  std::vector<std::int64_t> all;
  for (const auto& chunk : counts) all.insert(all.end(), chunk.begin(), chunk.end());
  return all;
}

void check_order(const StageLayers& tower, const StageLayers& model, const Counts& first, const Counts& second) {
  const auto before = in_order(first), behind = in_order(second);
  const auto has_layers = [](std::int64_t count) { return count > 0; };
  const auto end = std::find_if(before.rbegin(), before.rend(), has_layers).base() - before.begin();
  const auto begin = std::find_if(behind.begin(), behind.end(), has_layers) - behind.begin();
  const auto stages = static_cast<std::ptrdiff_t>(first.front().size());
  if (begin + 1 < end)
    throw ConfigError(text(model.key, " begins on stage ", begin % stages, " of chunk ", begin / stages, ", but ",
                           tower.key, " ends on stage ", (end - 1) % stages, " of chunk ", (end - 1) / stages,
                           "; the tower's layers must come first"));
}

}  // namespace

AddedStages added_stages(const StageLayers& tower, const StageLayers& model, std::int64_t stages) {
  const auto first = counts_of(tower), second = counts_of(model);
  check(tower, first, stages);
  check(model, second, stages);
  if (first.size() != second.size())
    throw ConfigError(text(tower.key, " has ", first.size(), " chunks of stages and ", model.key, " ", second.size(),
                           "; give as many"));
  check_order(tower, model, first, second);
  AddedStages out{"", static_cast<std::int64_t>(first.size())};
  for (std::size_t stage = 0; stage < static_cast<std::size_t>(stages); ++stage) {
    std::string chunks;
    for (std::size_t chunk = 0; chunk < first.size(); ++chunk)
      chunks += text(chunk > 0 ? ", " : "", first[chunk][stage] + second[chunk][stage]);
    out.list += text(stage > 0 ? ", " : "", "[", chunks, "]");
  }
  out.list = "[" + out.list + "]";
  return out;
}

}  // namespace tessera::flags
