#include "framework/checkpoint/format.h"

#include <deque>

namespace tessera {

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
  std::erase_if(names, [](const auto& name) { return name.rfind("optimizer.", 0) != 0; });
  return names;
}

std::optional<Progress> NativeCheckpoint::progress() const {
  const auto found = blobs().find(progress_blob);
  if (found == blobs().end()) return std::nullopt;
  return read_progress(found->second, (folder() / progress_blob).string());
}

Value NativeCheckpoint::recipe() const {
  throw ConfigError(
      text(folder().string(), ": holds no resolved.yaml, so its model is not known; was it saved by another program?"));
}

void NativeCheckpoint::must_fit_weights(std::span<const TensorRange> wanted, std::span<const TensorRange>) const {
  checkpoint_.must_fit(wanted);
}

void NativeCheckpoint::must_fit_optimizer(std::span<const TensorRange> wanted) const { checkpoint_.must_fit(wanted); }

std::optional<Value> CheckpointFormat::model_config(const std::filesystem::path&, const Mappings&) const {
  return std::nullopt;
}

Blobs CheckpointFormat::carried_files(const std::filesystem::path&) const { return {}; }

namespace {

[[noreturn]] void refuse_to_save(const CheckpointFormat& format) {
  throw ConfigError(text("checkpoints of format ", format.name(), " are only read; give another format to save in"));
}

}  // namespace

std::vector<TensorBox> CheckpointFormat::needed_by(const ForeignSave&, SavingRank,
                                                   const std::map<std::string, Shape>&) const {
  refuse_to_save(*this);
}

void CheckpointFormat::write_rank(const ForeignSave&, SavingRank, std::span<const TensorRange>) const {
  refuse_to_save(*this);
}

std::filesystem::path CheckpointFormat::finish(const ForeignSave&) const { refuse_to_save(*this); }

std::filesystem::path save_all_ranks(const CheckpointFormat& format, const ForeignSave& save,
                                     std::span<const TensorRange> tensors) {
  for (std::int64_t stage = 0; stage < save.layout.stages(); ++stage)
    for (std::int64_t tensor = 0; tensor < save.layout.tensor; ++tensor)
      format.write_rank(save, {tensor, stage}, tensors);
  return format.finish(save);
}

void save_rank(const CheckpointFormat& format, const ForeignSave& save, SavingRank rank, const Checkpoint& from) {
  std::map<std::string, Shape> shapes;
  for (const auto& name : from.names()) shapes.emplace(name, from.shape(name));
  std::deque<std::vector<std::byte>> memory;
  std::vector<TensorRange> ranges;
  for (const auto& [name, role, global_shape, box] : format.needed_by(save, rank, shapes)) {
    const Shape extent(box.extent);
    auto& bytes = memory.emplace_back(static_cast<std::size_t>(extent.elements()) * sizeof(float));
    ranges.push_back({.name = name,
                      .global_shape = global_shape,
                      .offsets = box.begin,
                      .tensor = Tensor{std::span(bytes), DType::float32, extent},
                      .role = role});
    from.read(ranges.back(), {false, true});
  }
  format.write_rank(save, rank, ranges);
}

const CheckpointFormat* CheckpointFormats::of(const std::filesystem::path& folder) const {
  for (const auto& format : all_)
    if (format->find(folder)) return format.get();
  return nullptr;
}

const CheckpointFormat& CheckpointFormats::named(const std::string& name) const {
  for (const auto& format : all_)
    if (format->name() == name) return *format;
  throw ConfigError(text("checkpoints of format '", name, "': ", all_.empty() ? no_interop : "no such format"));
}

}  // namespace tessera
