#include "framework/parallel/layer_plan.h"

#include <algorithm>

#include "framework/parallel/layer_shares.h"

namespace tessera::parallel {
namespace {

using Counts = std::vector<std::vector<std::int64_t>>;
const std::string parallel_config = "parallel_config.";

void check_noops(const ParallelOptions& o, const Towers& towers, std::vector<options::Finding>& mistakes) {
  const auto layers = towers.layers();
  auto ids = o.noop_layers.ids;
  std::sort(ids.begin(), ids.end());
  if (!ids.empty() && ids.back() >= layers)
    mistakes.push_back({parallel_config + "noop_layers",
                        text("noop_layers names layer ", ids.back(), "; the layers are 0 to ", layers - 1),
                        text("count from 0; ", towers.options(), " includes the no-op layers"), "noop layers"});
  if (std::adjacent_find(ids.begin(), ids.end()) != ids.end())
    mistakes.push_back({parallel_config + "noop_layers",
                        text("noop_layers names layer ", *std::adjacent_find(ids.begin(), ids.end()), " twice"),
                        "name each once", "noop layers"});
  if (static_cast<std::int64_t>(ids.size()) >= layers && layers > 0)
    mistakes.push_back({parallel_config + "noop_layers", "noop_layers leaves no layer that does anything", "name fewer",
                        "noop layers"});
}

/// A recompute list extended to all stages: zeros if it is not given, and for leading stages without layers, which it
/// may leave out.
Counts filled(const ChunkNumbers& numbers, const Counts& like) {
  Counts all(like.size(), std::vector<std::int64_t>(like[0].size(), 0));
  const auto skipped = like.size() - std::min(like.size(), numbers.stages.size());
  if (!numbers.empty())
    std::copy(numbers.stages.begin(), numbers.stages.end(), all.begin() + static_cast<long>(skipped));
  return all;
}

bool fits(const ChunkNumbers& numbers, const Counts& counts, bool first_left_out) {
  const auto size = numbers.stages.size();
  if (size != counts.size() && !(first_left_out && size + 1 == counts.size())) return false;
  return std::all_of(numbers.stages.begin(), numbers.stages.end(),
                     [&](const auto& stage) { return stage.size() == counts[0].size(); });
}

void check_recompute(const ParallelOptions& o, const Counts& counts, std::vector<options::Finding>& mistakes) {
  const std::vector<std::pair<const char*, const ChunkNumbers*>> lists = {
      {"recompute", &o.recompute},
      {"select_recompute", &o.select_recompute},
      {"select_comm_recompute", &o.select_comm_recompute}};
  bool all_fit = true;
  for (const auto& [name, numbers] : lists) {
    if (numbers->empty() || fits(*numbers, counts, o.standalone_embedding_stage)) continue;
    all_fit = false;
    mistakes.push_back({parallel_config + name,
                        text(name, " ", ChunkNumbers::Option::write(*numbers), " is not a list of ", counts.size(),
                             " stages of ", counts[0].size(), counts[0].size() == 1 ? " chunk" : " chunks"),
                        "give it the form of the cut of layers, [stage][chunk]", "recompute lists"});
  }
  if (!all_fit) return;
  const auto whole = filled(o.recompute, counts);
  for (std::size_t which = 0; which < lists.size(); ++which) {
    const auto more = which == 0 ? Counts{} : filled(*lists[which].second, counts);
    for (std::size_t p = 0; p < counts.size(); ++p)
      for (std::size_t c = 0; c < counts[p].size(); ++c) {
        const auto asked = whole[p][c] + (which == 0 ? 0 : more[p][c]);
        const bool told_before = which > 0 && whole[p][c] > counts[p][c];
        if (asked > counts[p][c] && !told_before)
          mistakes.push_back(
              {parallel_config + lists[which].first,
               text("stage ", p, " chunk ", c, " has ", counts[p][c], " layers, but ",
                    which == 0 ? "recompute" : text("recompute and ", lists[which].first), " ask for ", asked),
               "give at most as many as there are", "recompute lists"});
      }
  }
}

/// All mistakes; without any, `counts` is the number of layers per chunk.
std::vector<options::Finding> check(const ParallelOptions& o, const Towers& towers, Counts& counts) {
  std::vector<options::Finding> mistakes;
  counts = layer_shares(o, towers, mistakes);
  if (mistakes.empty()) check_recompute(o, counts, mistakes);
  check_noops(o, towers, mistakes);
  return mistakes;
}

/// "3", "0-3".
std::string range_told(std::int64_t first, std::int64_t layers) {
  return layers == 1 ? text(first) : text(first, "-", first + layers - 1);
}

}  // namespace

std::int64_t Towers::layers() const {
  std::int64_t sum = 0;
  for (const auto& tower : towers_) sum += tower.layers;
  return sum;
}

std::string Towers::options() const {
  std::string all;
  for (const auto& tower : towers_) {
    const auto name = options::name_in_group(tower.option);
    const auto same = std::ranges::count_if(
        towers_, [&](const Tower& other) { return options::name_in_group(other.option) == name; });
    all += (all.empty() ? "" : " + ") + (same > 1 ? tower.option : name);
  }
  return all;
}

std::vector<Towers::Part> Towers::parts(const ModelChunk& chunk) const {
  std::vector<Part> all;
  std::int64_t begin = 0;  // first layer of the tower
  for (std::size_t i = 0; i < towers_.size(); begin += towers_[i++].layers) {
    const auto first = std::max(chunk.first_layer, begin);
    const auto end = std::min(chunk.end_layer(), begin + towers_[i].layers);
    if (first < end) all.push_back({i, first - begin, end - first});
  }
  return all;
}

bool Towers::begins_tower(const ModelChunk& chunk) const {
  const auto all = parts(chunk);
  return std::any_of(all.begin(), all.end(), [](const Part& part) { return part.tower > 0 && part.first == 0; });
}

std::string Towers::told(const ModelChunk& chunk) const {
  std::string all;
  for (const auto& part : parts(chunk))
    all += text(all.empty() ? "" : ", ", towers_.size() > 1 ? towers_[part.tower].name + " " : "",
                range_told(part.first, part.layers));
  return all;
}

LayerPlan::LayerPlan(const Towers& towers)
    : towers_(towers), chunks_{{ModelChunk{.embedding = true, .layers = towers.layers(), .loss = true}}} {}

LayerPlan::LayerPlan(const ParallelOptions& o, const Towers& towers) : towers_(towers), noops_(o.noop_layers.ids) {
  Counts counts;
  const auto wrong = check(o, towers, counts);
  std::string all;
  for (const auto& mistake : wrong)
    all += text(all.empty() ? "" : "\n", mistake.option, ": ", options::sentence_of(mistake));
  if (!wrong.empty()) throw ConfigError(all);

  // Layers are numbered in the order of the forward pass: chunk by chunk over all stages.
  std::sort(noops_.begin(), noops_.end());
  chunks_.assign(counts.size(), std::vector<ModelChunk>(counts[0].size()));
  std::int64_t next = 0;
  for (std::size_t c = 0; c < counts[0].size(); ++c)
    for (std::size_t p = 0; p < counts.size(); ++p) {
      chunks_[p][c] = {.first_layer = next,
                       .layers = counts[p][c],
                       .chunk = static_cast<int>(c),
                       .chunks = static_cast<int>(counts[0].size()),
                       .noop = noops_};
      next += counts[p][c];
    }
  chunks_.front().front().embedding = true;
  chunks_.back().back().loss = true;
  if (o.recompute.empty() && o.select_recompute.empty() && o.select_comm_recompute.empty()) return;
  const auto whole = filled(o.recompute, counts), attention = filled(o.select_recompute, counts),
             gather = filled(o.select_comm_recompute, counts);
  for (std::size_t p = 0; p < counts.size(); ++p)
    for (std::size_t c = 0; c < counts[p].size(); ++c)
      chunks_[p][c].recompute = ChunkRecompute{whole[p][c], attention[p][c], gather[p][c]};
}

std::vector<options::Finding> LayerPlan::mistakes(const ParallelOptions& options, const Towers& towers) {
  Counts counts;
  return check(options, towers, counts);
}

const ModelChunk& LayerPlan::at(std::int64_t stage, std::int64_t chunk) const {
  must(stage >= 0 && stage < stages() && chunk >= 0 && chunk < chunks(), "a chunk that is asked for is in the plan");
  return chunks_[static_cast<std::size_t>(stage)][static_cast<std::size_t>(chunk)];
}

const std::vector<ModelChunk>& LayerPlan::stage(std::int64_t stage) const {
  must(stage >= 0 && stage < stages(), "a stage that is asked for is in the plan");
  return chunks_[static_cast<std::size_t>(stage)];
}

LayerPlan::ChunkIndex LayerPlan::of_layer(std::int64_t layer) const {
  for (std::int64_t p = 0; p < stages(); ++p)
    for (std::int64_t c = 0; c < chunks(); ++c)
      if (layer >= at(p, c).first_layer && layer < at(p, c).end_layer()) return {p, c};
  throw BugError(text("layer ", layer, " is in no chunk"));
}

bool LayerPlan::noop(std::int64_t layer) const { return std::binary_search(noops_.begin(), noops_.end(), layer); }

std::vector<std::vector<std::int64_t>> LayerPlan::layers_by_chunk() const {
  std::vector<std::vector<std::int64_t>> all;
  for (const auto& stage : chunks_) {
    auto& numbers = all.emplace_back();
    for (const auto& chunk : stage) numbers.push_back(chunk.layers);
  }
  return all;
}

std::optional<LayerPlan::ChunkIndex> LayerPlan::after(ChunkIndex place) const {
  if (place.stage + 1 < stages()) return ChunkIndex{place.stage + 1, place.chunk};
  if (place.chunk + 1 < chunks()) return ChunkIndex{0, place.chunk + 1};
  return {};
}

std::optional<LayerPlan::ChunkIndex> LayerPlan::before(ChunkIndex place) const {
  if (place.stage > 0) return ChunkIndex{place.stage - 1, place.chunk};
  if (place.chunk > 0) return ChunkIndex{stages() - 1, place.chunk - 1};
  return {};
}

std::string LayerPlan::drawing() const {
  std::string all;
  for (std::int64_t p = 0; p < stages(); ++p) {
    all += text("stage ", p);
    for (const auto& chunk : stage(p)) {
      all += " |";
      if (chunk.embedding) all += text(" embedding", chunk.layers > 0 || chunk.loss ? "," : "");
      if (chunk.layers > 0) all += text(chunk.layers == 1 ? " layer " : " layers ", towers_.told(chunk));
      if (chunk.loss) all += chunk.layers > 0 ? ", loss" : " loss";
      if (chunk.layers == 0 && !chunk.embedding && !chunk.loss) all += " nothing";
    }
    all += "\n";
  }
  return all;
}

}  // namespace tessera::parallel
