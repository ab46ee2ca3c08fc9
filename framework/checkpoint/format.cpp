#include "framework/checkpoint/format.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <utility>

#include "framework/checkpoint/room.h"
#include "framework/checkpoint/stored_state.h"

namespace tessera::checkpoint {

std::optional<Progress> progress_in(const Blobs& blobs, const std::filesystem::path& folder) {
  const auto found = blobs.find(progress_blob);
  if (found == blobs.end()) return std::nullopt;
  return read_progress(found->second, (folder / progress_blob).string());
}

void OpenedCheckpoint::must_fit_weights(std::span<const TensorRange> wanted, std::span<const TensorRange> all) const {
  must_fit(*this, all.empty() ? wanted : all);
}

void OpenedCheckpoint::must_fit_optimizer(std::span<const TensorRange> wanted) const {
  for (const auto& range : wanted)
    if (!has(range.name) || shape(range.name) != range.global_shape)
      throw ConfigError(text(folder().string(), ": has no '", range.name, "' of ", range.global_shape,
                             "; give training_config.no_load_optim: true to begin with the weights alone"));
}

std::vector<std::string> NativeCheckpoint::optimizer_names() const {
  auto names = checkpoint_.names();
  std::erase_if(names, [](const auto& name) { return !is_optimizer_state(name); });
  return names;
}

std::optional<Progress> NativeCheckpoint::progress() const { return progress_in(blobs(), folder()); }

options::Value NativeCheckpoint::recipe() const {
  throw ConfigError(
      text(folder().string(), ": holds no resolved.yaml, so its model is not known; was it saved by another program?"));
}

void NativeCheckpoint::must_fit_weights(std::span<const TensorRange> wanted, std::span<const TensorRange>) const {
  checkpoint_.must_fit(wanted);
}

void NativeCheckpoint::must_fit_optimizer(std::span<const TensorRange> wanted) const { checkpoint_.must_fit(wanted); }

std::unique_ptr<OpenedCheckpoint> CheckpointFormat::open_described(const std::filesystem::path& folder,
                                                                   const options::Mappings& mappings,
                                                                   const options::Value&) const {
  return open(folder, mappings);
}

std::vector<FoundCheckpoint> CheckpointFormat::list(const std::filesystem::path& folder) const {
  const auto found = find(folder);
  if (!found || *found == folder) return {};
  return {{.folder = *found, .iteration = iteration_in_name(*found).value_or(0), .format = this}};
}

std::optional<options::Value> CheckpointFormat::model_config(const std::filesystem::path&, const options::Mappings&,
                                                             std::vector<std::string>&) const {
  return std::nullopt;
}

std::string CheckpointFormat::weights_table(const std::filesystem::path&, const options::Mappings&) const { return ""; }

Blobs CheckpointFormat::carried_files(const std::filesystem::path&) const { return {}; }

std::filesystem::path CheckpointFormat::quantised(const std::filesystem::path& folder, const Quantisation&,
                                                  const options::Mappings&, std::vector<std::string>&) const {
  throw ConfigError(text(folder.string(),
                         ": weights of this format are not quantised; give a folder of Hugging Face "
                         "Transformers"));
}

namespace {

[[noreturn]] void refuse_to_save(const CheckpointFormat& format) {
  throw ConfigError(text("checkpoints of format ", format.name(), " are only read; give another format to save in"));
}

}  // namespace

void CheckpointFormat::write_rank(const ForeignSave&, const RankWeights&, const StateSnapshot&) const {
  refuse_to_save(*this);
}

void CheckpointFormat::write_owned(const ForeignSave&, const RankWeights&, std::int64_t, const StateSnapshot&) const {
  refuse_to_save(*this);
}

std::filesystem::path CheckpointFormat::finish(const ForeignSave&) const { refuse_to_save(*this); }

namespace {

void must_be_of_one_model(std::span<const RankWeights> ranks, std::span<const TensorRange> tensors) {
  const std::string advice = "; give a recipe that describes the model of this checkpoint";
  std::map<std::string, Shape> given;
  for (const auto& range : tensors)
    if (!is_optimizer_state(range.name)) given.emplace(range.name, range.global_shape);
  std::set<std::string> held;
  for (const auto& rank : ranks)
    for (const auto& chunk : rank.chunks)
      for (const auto& part : chunk) {
        const auto found = given.find(part.name);
        if (found == given.end())
          throw ConfigError(text(part.name, " is in the model that is to be saved, but not in the checkpoint", advice));
        if (found->second != part.global_shape)
          throw ConfigError(text(part.name, " is ", found->second, ", and ", part.global_shape,
                                 " in the model that is to be saved", advice));
        held.insert(part.name);
      }
  for (const auto& [name, shape] : given)
    if (held.count(name) == 0)
      throw ConfigError(text(name, " is in the checkpoint, but not in the model that is to be saved", advice));
}

}  // namespace

std::map<std::string, Shape> other_paddings(std::span<const RankWeights> ranks, const WeightSource& source,
                                            std::int64_t tokens) {
  std::map<std::string, Shape> shapes;
  for (const auto& rank : ranks)
    for (const auto& chunk : rank.chunks)
      for (const auto& part : chunk)
        if (differs_in_padding(source, {part.name, part.global_shape, {}, {}, part.role}, tokens))
          shapes.emplace(part.name, part.global_shape);
  return shapes;
}

std::filesystem::path save_all_ranks(const CheckpointFormat& format, const ForeignSave& save,
                                     std::span<const RankWeights> ranks, std::span<const TensorRange> tensors) {
  must_be_of_one_model(ranks, tensors);
  const LiveState state({tensors.begin(), tensors.end()});
  try {
    format.begin(save);
    for (const auto& rank : ranks) format.write_rank(save, rank, state);
    return format.finish(save);
  } catch (...) {
    format.abandon(save);
    throw;
  }
}

namespace {

/// The boxes of `parts`, and the same of their optimizer state, to be read as fp32.
std::vector<TensorRange> stored_ranges(const std::vector<WeightPart>& parts, const Checkpoint& source,
                                       const std::map<std::string, std::vector<std::string>>& states) {
  std::vector<TensorRange> ranges;
  for (const auto& part : parts)
    for (const auto& box : part.boxes) {
      const auto add = [&](const std::string& name) {
        ranges.push_back(
            {.name = name,
             .global_shape = source.shape(name) == source.shape(part.name) ? part.global_shape : source.shape(name),
             .offsets = box.begin,
             .tensor = Tensor::without_elements(DType::float32, Shape(box.extent)),
             .role = part.role});
      };
      add(part.name);
      if (const auto found = states.find(part.name); found != states.end())
        for (const auto& state : found->second) add(state);
    }
  return ranges;
}

/// `parts`: what is read for each of the ranks. `write` writes the files of rank `i`.
std::filesystem::path save_stored(const CheckpointFormat& format, const ForeignSave& save,
                                  std::span<const RankWeights> ranks, const Checkpoint& source,
                                  const std::function<std::vector<WeightPart>(std::size_t i)>& parts,
                                  const std::function<void(std::size_t i, const StateSnapshot& state)>& write) {
  const auto padded = other_paddings(ranks, CheckpointWeights(source), save.tokens);
  std::vector<TensorRange> all;
  for (const auto& name : source.names()) {
    const auto other = padded.find(name);
    const auto shape = other == padded.end() ? source.shape(name) : other->second;
    all.push_back(whole(name, Tensor::without_elements(source.dtype(name), shape)));
  }
  must_be_of_one_model(ranks, all);
  must_have_room(save.root, bytes_of_save(save, source));
  source.verify();
  const auto states = states_by_weight(source);
  try {
    format.begin(save);
    for (std::size_t i = 0; i < ranks.size(); ++i)
      write(i, StoredState(source, stored_ranges(parts(i), source, states)));
    return format.finish(save);
  } catch (...) {
    format.abandon(save);
    throw;
  }
}

}  // namespace

std::filesystem::path save_all_ranks(const CheckpointFormat& format, const ForeignSave& save,
                                     std::span<const RankWeights> ranks, const Checkpoint& source) {
  return save_stored(
      format, save, ranks, source,
      [&](std::size_t i) {
        std::vector<WeightPart> parts;
        for (const auto& chunk : ranks[i].chunks) parts.insert(parts.end(), chunk.begin(), chunk.end());
        return parts;
      },
      [&](std::size_t i, const StateSnapshot& state) { format.write_rank(save, ranks[i], state); });
}

std::filesystem::path save_owned_ranks(const CheckpointFormat& format, const ForeignSave& save,
                                       std::span<const RankWeights> ranks,
                                       std::span<const std::vector<WeightPart>> owned, const Checkpoint& source) {
  return save_stored(
      format, save, ranks, source, [&](std::size_t i) { return owned[i]; },
      [&](std::size_t i, const StateSnapshot& state) {
        format.write_owned(save, ranks[i], static_cast<std::int64_t>(i), state);
      });
}

std::vector<FoundCheckpoint> CheckpointFormats::list(const std::filesystem::path& folder) const {
  std::vector<FoundCheckpoint> listed;
  for (const auto& format : all_)
    for (auto& found : format->list(folder))
      if (std::none_of(listed.begin(), listed.end(), [&](const auto& other) { return other.folder == found.folder; }))
        listed.push_back(std::move(found));
  return listed;
}

const CheckpointFormat* CheckpointFormats::of(const std::filesystem::path& folder) const {
  for (const auto& format : all_)
    if (format->find(folder)) return format.get();
  return nullptr;
}

const CheckpointFormat* CheckpointFormats::find(const std::string& name) const {
  for (const auto& format : all_)
    if (format->name() == name) return format.get();
  return nullptr;
}

const CheckpointFormat& CheckpointFormats::named(const std::string& name) const {
  if (const auto* format = find(name)) return *format;
  throw ConfigError(text("checkpoints of format '", name, "': ", all_.empty() ? no_interop : "no such format"));
}

}  // namespace tessera::checkpoint
