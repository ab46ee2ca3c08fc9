#include "framework/interop/mindspeed_mm/mm_layout.h"

#include <algorithm>

#include "framework/base/error.h"
#include "framework/options/option_type.h"

namespace tessera::mindspeed_mm {
namespace {

using Numbers = std::vector<std::int64_t>;

std::size_t place_in_order(const MmLayout& layout, const MmPlace& place) {
  return place.chunk * layout.stages() + place.stage;
}

std::string told(const MmPlace& place, const MmLayout& layout) {
  return layout.chunks() == 1 ? text("stage ", place.stage) : text("chunk ", place.chunk, " of stage ", place.stage);
}

/// Whether every chunk has as many stages as the first.
bool is_even(const StageLayers& layers) {
  const auto& chunks = layers.chunks;
  return !chunks.empty() && !chunks[0].empty() &&
         std::all_of(chunks.begin(), chunks.end(), [&](const auto& chunk) { return chunk.size() == chunks[0].size(); });
}

}  // namespace

std::int64_t StageLayers::sum() const {
  std::int64_t all = 0;
  for (const auto& chunk : chunks)
    for (const auto count : chunk) all += count;
  return all;
}

bool StageLayers::Option::read(const options::Value& value, StageLayers& out) {
  if (value.kind != options::Value::Kind::list || value.items.empty()) return false;
  Numbers flat;
  if (options::OptionType<Numbers>::read(value, flat)) return out.chunks = {flat}, true;
  std::vector<Numbers> all;
  if (!options::OptionType<std::vector<Numbers>>::read(value, all)) return false;
  return out.chunks = std::move(all), true;
}

options::Value StageLayers::Option::write(const StageLayers& layers) {
  return options::OptionType<std::vector<Numbers>>::write(layers.chunks);
}

std::string words(const StageLayers& layers) { return text(StageLayers::Option::write(layers)); }

std::vector<MmPlace> MmLayout::places() const {
  std::vector<MmPlace> all;
  for (std::size_t chunk = 0; chunk < chunks(); ++chunk)
    for (std::size_t stage = 0; stage < stages(); ++stage) all.push_back({chunk, stage});
  return all;
}

std::int64_t MmLayout::layers_before(std::size_t tower, const MmPlace& place) const {
  std::int64_t before = 0;
  for (const auto& other : places()) {
    if (other == place) break;
    before += layers(tower, other);
  }
  return before;
}

MmPlace MmLayout::first(std::size_t tower) const {
  const auto all = places();
  const auto found = std::find_if(all.begin(), all.end(), [&](const auto& place) { return layers(tower, place) > 0; });
  must(found != all.end(), "a tower has layers");
  return *found;
}

MmPlace MmLayout::last(std::size_t tower) const {
  const auto all = places();
  const auto found =
      std::find_if(all.rbegin(), all.rend(), [&](const auto& place) { return layers(tower, place) > 0; });
  must(found != all.rend(), "a tower has layers");
  return *found;
}

std::vector<options::Finding> mistakes(const MmLayout& layout, const std::vector<std::string>& names) {
  std::vector<options::Finding> found;
  for (std::size_t i = 0; i < names.size(); ++i) {
    const auto& layers = layout.towers[i];
    if (!is_even(layers))
      found.push_back({names[i],
                       text(names[i], " is ", words(layers), ": its chunks have different numbers of stages, or none"),
                       "give one number of layers for each stage in every chunk"});
    else if (layers.sum() == 0)
      found.push_back({names[i], text(names[i], " is ", words(layers), ": the tower has no layers"),
                       "give the stages the layers of the model"});
  }
  if (!found.empty()) return found;
  for (std::size_t i = 1; i < names.size(); ++i) {
    const auto &one = layout.towers[0].chunks, &other = layout.towers[i].chunks;
    if (one.size() != other.size() || one[0].size() != other[0].size())
      found.push_back({names[i],
                       text(names[i], " has ", other.size(), " x ", other[0].size(), " chunks x stages, ", names[0],
                            " has ", one.size(), " x ", one[0].size()),
                       "give both the same numbers; a stage without layers has a 0"});
  }
  if (!found.empty()) return found;
  for (std::size_t i = 1; i < names.size(); ++i) {
    const auto first = layout.first(i), last = layout.last(i - 1);
    if (place_in_order(layout, first) < place_in_order(layout, last))
      found.push_back({names[i],
                       text(names[i], " is ", words(layout.towers[i]), ": its first layer is on ", told(first, layout),
                            ", before the last layer of ", names[i - 1], " on ", told(last, layout)),
                       text("end ", names[i - 1], " on that stage or before it")});
  }
  return found;
}

}  // namespace tessera::mindspeed_mm
