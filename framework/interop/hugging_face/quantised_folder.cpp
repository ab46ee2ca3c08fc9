#include "framework/interop/hugging_face/quantised_folder.h"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string_view>

#include "framework/base/build_lock.h"
#include "framework/base/error.h"
#include "framework/base/files.h"
#include "framework/base/json.h"
#include "framework/base/memory_limit.h"
#include "framework/checkpoint/copy_converted.h"
#include "framework/checkpoint/laid_out_weights.h"
#include "framework/interop/hugging_face/hugging_face.h"
#include "framework/interop/hugging_face/packed_weights.h"
#include "framework/kernels/nf4.h"

namespace tessera::hugging_face {
namespace {

namespace fs = std::filesystem;

constexpr const char* source_file = "quantised_from.txt";

/// Of the linear layers that bitsandbytes quantises: no output layer, no router, and no experts, whose weights are
/// parameters of one module in Transformers 5. `weight` is a name of ours.
bool is_quantised(const std::string& weight) {
  const auto end = weight.rfind('.');
  if (end == std::string::npos || weight.substr(end) != ".weight") return false;
  const auto begin = weight.rfind('.', end - 1);
  return begin != std::string::npos && weight.compare(begin, 8, ".linear_") == 0 &&
         weight.find(".local_experts.") == std::string::npos;
}

/// What a quantised folder is made of.
std::string description_of(const fs::path& folder, bool nested) {
  return text("version 1, maxima in ", nested ? 8 : 32, " bits\n", checkpoint::identity_of_files(folder));
}

std::vector<float> turned_values(const std::vector<float>& values, std::int64_t rows, std::int64_t columns) {
  std::vector<float> out(values.size());
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t c = 0; c < columns; ++c)
      out[static_cast<std::size_t>(c * rows + r)] = values[static_cast<std::size_t>(r * columns + c)];
  return out;
}

/// Writes one quantised folder.
class Quantiser {
 public:
  Quantiser(const fs::path& folder, const checkpoint::Quantisation& how, const options::Mappings& mappings)
      : folder_(folder), nested_(how.nested), tell_(how.tell), model_(folder, mappings), files_(folder) {
    for (const auto& row : model_.table().rows()) {
      if (!is_quantised(row.name)) continue;
      if (!model_.storage_type(row.name).empty()) {
        ++quantised_already_;
        continue;
      }
      const bool turned = std::ranges::find(row.steps, WeightStep::transpose) != row.steps.end();
      for (const auto& part : row.from) chosen_[model_.found(part)] = turned;
    }
  }

  /// The number of tensors to quantise, and of weights that are quantised in the source.
  std::size_t chosen() const { return chosen_.size(); }
  std::size_t quantised_already() const { return quantised_already_; }

  void write(const fs::path& out) {
    for (const auto& name : files_.names()) all_ += files_.tensor(name).bytes();
    tell(text("quantising ", chosen(), " matrices of ", folder_.string(), ", ",
              in_binary_units(static_cast<double>(all_)), ", to nf4 once"));
    for (const auto& name : files_.names()) {
      const auto found = chosen_.find(name);
      if (found == chosen_.end())
        add(name, files_.tensor(name));
      else
        add_quantised(name, found->second);
      read_ += files_.tensor(name).bytes();
      if (filled_ >= bytes_of_file) write_shard(out);
    }
    if (!views_.empty()) write_shard(out);
    files_.require_intact();
    const Json index = {{"metadata", {{"total_size", total_}}}, {"weight_map", places_}};
    write_file_atomic(out / "model.safetensors.index.json", index.dump(2) + "\n");
    write_other_files(out);
  }

 private:
  static constexpr std::uint64_t bytes_of_file = std::uint64_t{256} << 20U;

  void add(const std::string& name, const Tensor& tensor) {
    views_[name] = tensor;
    filled_ += tensor.bytes();
  }

  void add_quantised(const std::string& name, bool turned) {
    const auto tensor = files_.tensor(name);
    checkpoint::must_be_finite(tensor, text(folder_.string(), ": tensor '", name, "'"));
    auto shape = tensor.shape();
    std::vector<float> values(static_cast<std::size_t>(shape.elements()));
    checkpoint::copy_converted(tensor, Tensor(std::span<float>(values), shape));
    if (turned) {
      values = turned_values(values, shape[0], shape[1]);
      shape = {shape[1], shape[0]};
    }
    const auto type = tensor.dtype() == DType::float64 ? DType::float32 : tensor.dtype();
    for (auto& [ending, part] : pack_nf4(values, shape, type, nested_))
      add(name + ending, memory_.emplace(name + ending, std::move(part)).first->second.view());
  }

  void tell(const std::string& line) const {
    if (tell_) tell_(line);
  }

  void write_shard(const fs::path& out) {
    const auto file = text("model-", ++shards_, ".safetensors");
    checkpoint::write_safetensors(out / file, views_, {{"format", "pt"}});
    for (const auto& [name, tensor] : views_) places_[name] = file;
    total_ += filled_;
    filled_ = 0;
    views_.clear();
    memory_.clear();
    tell(text("quantised ", read_ * 100 / std::max<std::uint64_t>(all_, 1), " % of ", folder_.string()));
  }

  void write_other_files(const fs::path& out) const {
    const std::string prefix = carried_prefix;
    for (const auto& [name, content] : model_.blobs())  // the index of the source names files that are not here
      if (name.starts_with(prefix)) write_file_atomic(out / name.substr(prefix.size()), content);
    auto config = parse_json(read_file(folder_ / "config.json"));
    config["quantization_config"] = {{"quant_method", "bitsandbytes"},
                                     {"load_in_4bit", true},
                                     {"load_in_8bit", false},
                                     {"bnb_4bit_quant_type", "nf4"},
                                     {"bnb_4bit_use_double_quant", nested_},
                                     {"bnb_4bit_quant_storage", "uint8"}};
    write_file_atomic(out / "config.json", config.dump(2) + "\n");
  }

  fs::path folder_;
  bool nested_;
  std::function<void(const std::string&)> tell_;
  HuggingFaceModel model_;
  checkpoint::SafetensorsReader files_;
  std::map<std::string, bool> chosen_;  ///< names in the files; whether it is transposed there
  std::size_t quantised_already_ = 0;

  std::map<std::string, Tensor> views_;      ///< of the file that is being filled
  std::map<std::string, OwnTensor> memory_;  ///< what they view, apart from tensors of files_
  std::uint64_t filled_ = 0, total_ = 0;     ///< bytes
  std::uint64_t all_ = 0, read_ = 0;         ///< bytes of the source
  int shards_ = 0;
  Json places_ = Json::object();
};

/// Of a path that may end with '/'.
std::string last_name(const fs::path& folder) {
  const auto whole = fs::weakly_canonical(folder);
  return (whole.has_filename() ? whole : whole.parent_path()).filename().string();
}

}  // namespace

fs::path quantised_folder(const fs::path& folder, const checkpoint::Quantisation& how,
                          const options::Mappings& mappings, std::vector<std::string>& notes) {
  Quantiser quantiser(folder, how, mappings);
  if (quantiser.chosen() == 0 && quantiser.quantised_already() > 0) return folder;
  if (quantiser.chosen() == 0)
    throw ConfigError(text(folder.string(), ": the model has no linear layers to quantise; leave qlora out"));
  const auto name = last_name(folder) + "-nf4";
  const auto out = how.cache / name;
  const auto wanted = description_of(folder, how.nested);
  const auto is_there = [&] { return fs::exists(out / source_file) && read_file(out / source_file) == wanted; };
  if (!how.writes) return is_there() ? out : folder;
  make_folder(how.cache);
  const auto lock = BuildLock::take(how.cache / (name + ".lock"));
  if (is_there()) return out;
  if (fs::exists(out))
    notes.push_back(
        text(out.string(), " was made of other weights, or with another qlora_double_quant: it is made again"));
  const auto unfinished = how.cache / (name + "_tmp");
  delete_all(unfinished);
  make_folder(unfinished);
  quantiser.write(unfinished);
  write_file_atomic(unfinished / source_file, wanted);
  rename_or_exchange(unfinished, out);
  sync_folder(how.cache);
  delete_all(unfinished);
  notes.push_back(
      text(quantiser.chosen(), " matrices of ", folder.string(), " were quantised to nf4, in ", out.string()));
  return out;
}

fs::path HuggingFaceFormat::quantised(const fs::path& folder, const checkpoint::Quantisation& how,
                                      const options::Mappings& mappings, std::vector<std::string>& notes) const {
  return quantised_folder(folder, how, mappings, notes);
}

std::optional<std::int64_t> HuggingFaceFormat::quantised_bytes(const std::string& name, std::int64_t elements,
                                                               const checkpoint::Quantisation& how) const {
  if (!is_quantised(name)) return std::nullopt;
  const auto blocks = [](std::int64_t of, std::int64_t size) { return (of + size - 1) / size; };
  const auto maxima = blocks(elements, kernels::nf4_block);
  const auto of_maxima = how.nested ? maxima + 4 * blocks(maxima, kernels::nf4_nested_block) : 4 * maxima;
  return kernels::nf4_bytes(elements) + of_maxima;
}

}  // namespace tessera::hugging_face
