#include "framework/interop/hugging_face/hugging_face.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <set>

#include "framework/checkpoint/copy_converted.h"
#include "framework/interop/tables/our_names.h"
#include "framework/model/architecture.h"
#include "framework/options/schema.h"

namespace tessera::hugging_face {
namespace {

namespace fs = std::filesystem;

std::int64_t number(const options::Value& config, const std::string& key, std::int64_t otherwise) {
  const auto* value = config.find(key);
  if (value == nullptr || value->kind == options::Value::Kind::none) return otherwise;
  std::int64_t out = 0;
  const auto* end = value->scalar.data() + value->scalar.size();
  const auto [stop, error] = std::from_chars(value->scalar.data(), end, out);
  if (error != std::errc{} || stop != end || out < 1)
    throw ConfigError(text(value->origin, ": ", key, " is ", *value, "; expected an integer of at least 1"));
  return out;
}

std::int64_t needed(const options::Value& config, const std::string& speaker, const std::string& key) {
  const auto value = number(config, key, 0);
  if (value < 1) throw ConfigError(text(speaker, ": does not give ", key));
  return value;
}

/// 1 for true; 0 for false, and if there is none.
double value_of(const options::Value& config, const std::string& key) {
  const auto* value = config.at(key);
  if (value == nullptr || value->kind != options::Value::Kind::scalar) return 0;
  return value->scalar == "true" ? 1 : std::strtod(value->scalar.c_str(), nullptr);
}

/// True, or a number other than 0.
bool holds(const options::Value& config, const std::string& key) { return value_of(config, key) != 0; }

std::string list_of(const std::vector<std::string>& names) {
  constexpr std::size_t most = 8;
  std::string list;
  for (std::size_t i = 0; i < std::min(most, names.size()); ++i) list += "\n  " + names[i];
  if (names.size() > most) list += text("\n  and ", names.size() - most, " more");
  return list;
}

bool ends_with(const std::string& name, const std::string& end) {
  return name.size() >= end.size() && name.compare(name.size() - end.size(), end.size(), end) == 0;
}

/// What may stand wrongly in front of, or be missing from, every name: "... all are there with 'base.' in front".
std::string prefix_hint(const std::vector<std::string>& missing, const std::vector<std::string>& left_over) {
  const std::set<std::string> there(left_over.begin(), left_over.end());
  const auto fits = [&](const auto& renamed) {
    return std::all_of(missing.begin(), missing.end(), [&](const auto& name) { return there.count(renamed(name)); });
  };
  for (const auto& other : left_over) {
    const auto& name = missing.front();
    if (other.size() > name.size() && ends_with(other, name)) {
      const auto prefix = other.substr(0, other.size() - name.size());
      if (fits([&](const auto& one) { return prefix + one; }))
        return text("\n all that is missing is there with '", prefix, "' in front; take that away from the names");
    }
    if (other.size() < name.size() && ends_with(name, other)) {
      const auto prefix = name.substr(0, name.size() - other.size());
      if (fits([&](const auto& one) { return one.rfind(prefix, 0) == 0 ? one.substr(prefix.size()) : one; }))
        return text("\n all that is missing is there without '", prefix, "' in front; put that before the names");
    }
  }
  return "";
}

}  // namespace

namespace {

/// Throws ConfigError with the first of `broken` that is about one of `options`. The others are about options that the
/// weights do not depend on; whoever reads the recipe reports those.
void must_hold(const std::string& speaker, const std::vector<options::Finding>& broken,
               const std::set<std::string>& options) {
  for (const auto& finding : broken)
    if (options.count(finding.option)) throw ConfigError(text(speaker, ": ", options::sentence_of(finding)));
}

/// The value as a recipe gives it: one of layer 0 is a default, and does not count where a value is required.
options::Value given(options::Value value) {
  value.origin.layer = 1;
  return value;
}

/// The options of `config` that the layouts of weights depend on, as a recipe.
options::Value recipe_of_heads(const options::Value& config, const std::string& speaker) {
  const std::string group = "model_config.";
  options::Value recipe;
  const auto copy = [&](const char* key) {
    if (const auto* value = config.find(key)) recipe.set(group + key, given(*value));
  };
  // Neither is read here. With the defaults, rules about options that are not filled in would be broken.
  recipe.set(group + "num_layers", given(options::Value::of("1", {})));
  recipe.set(group + "position_embedding_type", given(options::Value::of("none", {})));
  for (const char* key : {"num_attention_heads", "hidden_size"}) {
    (void)needed(config, speaker, key);
    copy(key);
  }
  for (const char* key : {"model_type", "multi_latent_attention", "use_visual_encoder"}) copy(key);
  if (holds(config, "multi_latent_attention")) return recipe;  // no fused projection of all heads
  for (const char* key : {"num_layers", "hidden_size", "num_attention_heads"})
    if (const auto* value = config.at(text("vision_config.", key)))
      recipe.set(text("vision_config.", key), given(*value));
  if (number(config, "kv_channels", 0) > 0) copy("kv_channels");
  copy("group_query_attention");
  if (!holds(config, "group_query_attention")) return recipe;
  (void)needed(config, speaker, "num_query_groups");
  copy("num_query_groups");
  return recipe;
}

/// The architecture of a recipe in which options are missing that the weights do not depend on. Throws ConfigError for
/// a mistake in one of `options`.
std::unique_ptr<model::Architecture> architecture_of(const options::Value& recipe, const model::MoeOptions& moe,
                                                     const std::string& speaker, const std::set<std::string>& options) {
  options::Report report;
  options::Group group(recipe, "model_config", report), tower(recipe, "vision_config", report);
  const auto choice = model::models().read(group);
  if (!choice.make) report.must_be_good();
  const auto vision = options::read_own<model::VisionOptions>(tower);
  must_hold(speaker, report.findings(), options);
  return choice.make({.seq_length = 1, .moe = moe, .vision = vision});
}

model::WeightLayout weight_layout(const model::Architecture& architecture, const std::string& speaker) {
  auto layout = architecture.weight_layout();
  if (!layout) throw ConfigError(text(speaker, ": this model_type has no names for tables of weights"));
  return *std::move(layout);
}

const std::set<std::string> options_of_heads = {"model_config.num_attention_heads",  "model_config.hidden_size",
                                                "model_config.kv_channels",          "model_config.num_query_groups",
                                                "vision_config.num_attention_heads", "vision_config.hidden_size"};

/// Mistakes in the heads of multi-latent attention are reported with the recipe.
std::set<std::string> heads_to_check(const options::Value& config) {
  return holds(config, "multi_latent_attention") ? std::set<std::string>() : options_of_heads;
}

}  // namespace

void check_heads(const options::Value& config, const std::string& speaker) {
  (void)architecture_of(recipe_of_heads(config, speaker), {}, speaker, heads_to_check(config));
  // Transformers pairs the channels of an odd number otherwise than we do.
  const auto percent = value_of(config, "rotary_percent"), heads = value_of(config, "num_attention_heads");
  const auto given = value_of(config, "kv_channels");
  const auto channels = given > 0 ? given : value_of(config, "hidden_size") / std::max(heads, 1.0);
  if (const auto rotated = static_cast<std::int64_t>(channels * percent); percent > 0 && rotated % 2 != 0)
    throw ConfigError(text(speaker, ": a fraction ", percent, " of the ", channels, " channels of a head are ", rotated,
                           " with rotary positions; an even number was expected"));
}

WeightTable weight_table(const std::string& name, const options::Value& model_config, const options::Mappings& mappings,
                         const std::string& speaker) {
  check_heads(model_config, speaker);
  auto recipe = recipe_of_heads(model_config, speaker);
  (void)needed(model_config, speaker, "num_layers");
  for (const char* key : {"num_layers", "num_experts", "mtp_num_layers"})
    if (holds(model_config, key)) recipe.set(text("model_config.", key), given(*model_config.find(key)));
  model::MoeOptions moe;
  if (const auto* layers = model_config.at("moe_config.moe_layer_freq"))
    if (!model::LayerFrequency::Option::read(*layers, moe.moe_layer_freq))
      throw ConfigError(text(speaker, ": moe_layer_freq is ", *layers, "; expected an integer, or a list of 0 and 1"));
  const auto architecture = architecture_of(recipe, moe, speaker,
                                            {"model_config.num_layers", "model_config.num_experts",
                                             "model_config.mtp_num_layers", "vision_config.num_layers"});
  std::vector<options::Finding> broken;
  for (auto& rule : architecture->broken_rules([](const std::string&) { return false; }))
    broken.push_back(std::move(rule.finding));
  must_hold(speaker, broken, {"model_config.num_experts", "moe_config.moe_layer_freq"});
  return {mappings.table(name), weight_layout(*architecture, speaker),
          [&](const std::string& key) { return value_of(model_config, key); }};
}

void drop_absent_predictions(HuggingFaceConfig& config, const checkpoint::NamedTensors& files,
                             const options::Mappings& mappings, const std::string& speaker) {
  if (!holds(config.model_config, "mtp_num_layers")) return;
  const auto table = weight_table(config.weights_table, config.model_config, mappings, speaker);
  const bool there = std::any_of(table.rows().begin(), table.rows().end(), [&](const auto& row) {
    return row.name.rfind("mtp.", 0) == 0 &&
           std::any_of(row.from.begin(), row.from.end(), [&](const auto& name) { return files.has(name); });
  });
  if (!there) config.model_config.set("mtp_num_layers", options::Value::of("0", {speaker, 0, "", 1}));
}

namespace {

PackedWeights packed_of(const checkpoint::NamedTensors& files) {
  const auto* plain = dynamic_cast<const checkpoint::SafetensorsReader*>(&files);
  return plain == nullptr ? PackedWeights() : PackedWeights(*plain);
}

}  // namespace

HuggingFaceModel::HuggingFaceModel(const fs::path& folder, const options::Mappings& mappings)
    : folder_(folder),
      carried_(HuggingFaceFormat().carried_files(folder)),
      config_(read_hugging_face_config(folder / "config.json", mappings)),
      files_(open_model_tensors(folder, config_, mappings)),
      packed_(packed_of(*files_)),
      table_(table_of_files(mappings)) {
  table_.take_transposed([this](const auto& part) { return packed(part) != nullptr; });
  check_tensors();
  take_states();
}

HuggingFaceModel::HuggingFaceModel(const HuggingFaceModel& model, std::unique_ptr<const checkpoint::NamedTensors> files)
    : folder_(model.folder_), config_(model.config_), files_(std::move(files)), packed_(), table_(model.table_) {
  check_tensors();
}

void HuggingFaceModel::check_tensors() {
  for (std::size_t i = 0; i < table_.rows().size(); ++i) rows_.emplace(table_.rows()[i].name, i);
  refuse_missing_and_left_over();
  refuse_other_types();
  for (const auto& row : table_.rows()) (void)shape(row.name);
  refuse_another_size();
  refuse_copies_that_differ();
}

WeightTable HuggingFaceModel::table_of_files(const options::Mappings& mappings) {
  const auto speaker = (folder_ / "config.json").string();
  drop_absent_predictions(config_, *files_, mappings, speaker);
  return weight_table(config_.weights_table, config_.model_config, mappings, speaker);
}

std::string HuggingFaceModel::found(const std::string& name) const {
  for (auto& spelled : table_.names_in_files(name))
    if (files_->has(spelled)) return spelled;
  return "";
}

void HuggingFaceModel::refuse_missing_and_left_over() const {
  std::set<std::string> taken;
  std::vector<std::string> missing, left_over;
  for (const auto& row : table_.rows())
    for (const auto& name : row.from) {
      const auto file_name = found(name);
      if (file_name.empty())
        missing.push_back(name);
      else
        taken.insert(file_name);
    }
  if (const auto* files = dynamic_cast<const checkpoint::SafetensorsReader*>(files_.get()))
    for (const auto& [name, file] : files->unnamed())
      if (taken.contains(name))
        throw ConfigError(text((folder_ / index_file).string(), ": does not name tensor '", name, "', which ", file,
                               " has; the index is not that of these files: fetch or copy the folder again"));
  for (const auto& name : files_->names())
    if (taken.count(name) == 0 && !packed_.has_part(name) && !table_.ignores(name)) left_over.push_back(name);
  if (missing.empty() && left_over.empty()) return;
  throw ConfigError(text(folder_.string(), ": the tensors are not those of the model that config.json describes",
                         missing.empty() ? "" : "\n missing:" + list_of(missing),
                         left_over.empty() ? "" : "\n unexpected:" + list_of(left_over),
                         missing.empty() ? "" : prefix_hint(missing, left_over)));
}

void HuggingFaceModel::refuse_other_types() const {
  for (const auto& row : table_.rows())
    for (const auto& name : row.from) {
      const auto type = type_of_part(name);
      if (type != DType::float32 && type != DType::bfloat16 && type != DType::float16 && type != DType::float64)
        throw ConfigError(text(folder_.string(), ": tensor '", found(name), "' holds ", safetensors_name(type),
                               "; weights are F32, BF16, F16 or F64"));
    }
}

void HuggingFaceModel::refuse_another_size() const {
  const auto& config = config_.model_config;
  const auto speaker = (folder_ / "config.json").string();
  const Shape expected{needed(config, speaker, "vocab_size"), needed(config, speaker, "hidden_size")};
  for (const auto& row : table_.rows()) {
    if (!tables::counts_tokens(row.name)) continue;
    const bool matrix = tables::has_vocabulary_rows(row.name);
    if (const auto wanted = matrix ? expected : Shape{expected[0]}; shape(row.name) != wanted)
      throw ConfigError(text(folder_.string(), ": tensor '", found(row.from.front()), "' is ", shape(row.name),
                             "; config.json says ", wanted, matrix ? " (vocab_size, hidden_size)" : " (vocab_size)"));
  }
}

void HuggingFaceModel::refuse_copies_that_differ() const {
  for (const auto& copy : table_.copies()) {
    const auto there = found(copy.name), original = found(copy.of);
    if (there.empty() || original.empty()) continue;
    const bool taken = std::any_of(table_.rows().begin(), table_.rows().end(), [&](const auto& row) {
      return std::find(row.from.begin(), row.from.end(), copy.name) != row.from.end();
    });
    if (taken || packed_.find(there) != nullptr || packed_.find(original) != nullptr) continue;
    const auto own = files_->whole(there), other = files_->whole(original);
    const auto &a = own.tensor, &b = other.tensor;
    if (a.dtype() != b.dtype() || a.shape() != b.shape() || std::memcmp(a.raw().data(), b.raw().data(), a.bytes()) != 0)
      throw ConfigError(text(folder_.string(), ": tensor '", there, "' differs from '", original,
                             copy.written ? "', of which it must be a copy"
                                          : "', but config.json says that one serves for both (tie_word_embeddings)"));
  }
}

std::vector<std::string> HuggingFaceModel::names() const {
  std::vector<std::string> names;
  for (const auto& row : table_.rows()) names.push_back(row.name);
  return names;
}

const WeightRow& HuggingFaceModel::row(const std::string& name) const {
  const auto at = rows_.find(name);
  if (at == rows_.end()) throw ConfigError(text(folder_.string(), ": has no tensor '", name, "'"));
  return table_.rows()[at->second];
}

/// Of one of the experts in the tensor `name` of the files, which has the shape `whole`.
Shape HuggingFaceModel::shape_of_expert(const WeightRow& row, const std::string& name, const Shape& whole) const {
  const auto experts = number(config_.model_config, "num_experts", 0);
  if (whole.rank() < 2 || whole[0] != experts)
    throw ConfigError(text(folder_.string(), ": tensor '", name, "' is ", whole, "; expected the ", experts,
                           " experts of '", row.name, "' as its first extent"));
  return Shape(std::vector<std::int64_t>(whole.dims().begin() + 1, whole.dims().end()));
}

std::vector<Shape> HuggingFaceModel::part_shapes(const WeightRow& row) const {
  std::vector<Shape> shapes;
  for (const auto& name : row.from) {
    const auto* weight = packed(name);
    const auto whole = weight != nullptr ? weight->shape : files_->shape(found(name));
    shapes.push_back(row.expert ? shape_of_expert(row, found(name), whole) : whole);
  }
  return shapes;
}

DType HuggingFaceModel::type_of_part(const std::string& part) const {
  const auto* weight = packed(part);
  return weight != nullptr ? weight->type : files_->dtype(found(part));
}

Shape HuggingFaceModel::shape(const std::string& name) const {
  if (const auto [state, weight] = state_of(name); state != nullptr) return state->shape(weight);
  const auto& wanted = row(name);
  try {
    return shape_of(wanted, part_shapes(wanted));
  } catch (const ShapeError& error) {
    throw ConfigError(text(folder_.string(), ": ", error.what(), "; a file is of another model than config.json"));
  }
}

DType HuggingFaceModel::dtype(const std::string& name) const {
  if (const auto [state, weight] = state_of(name); state != nullptr) return state->dtype(weight);
  const auto& from = row(name).from;
  const auto type = type_of_part(from.front());
  for (const auto& part : from)
    if (type_of_part(part) != type) return DType::float32;
  return type;
}

void HuggingFaceModel::read(const std::string& name, const Tensor& into) const {
  if (const auto [state, weight] = state_of(name); state != nullptr) return state->read(weight, into);
  const auto& wanted = row(name);
  const auto shapes = part_shapes(wanted);
  const auto whole_shape = shape_of(wanted, shapes);
  must(into.elements() == whole_shape.elements(), "the memory for an imported tensor holds its elements");
  const auto type = dtype(name);
  const auto size = size_of(type);
  std::vector<std::byte> joined(static_cast<std::size_t>(whole_shape.elements()) * size);
  auto target = std::span(joined);
  for (std::size_t i = 0; i < wanted.from.size(); ++i) {
    const auto bytes = static_cast<std::size_t>(shapes[i].elements()) * size;
    read_part(wanted, i, Tensor(target.first(bytes), type, shapes[i]));
    target = target.subspan(bytes);
  }
  files_->require_intact();
  auto ours = to_ours(wanted, std::move(joined), size, shapes);
  checkpoint::copy_converted(Tensor(std::span(ours), type, whole_shape), into);
}

void HuggingFaceModel::read_part(const WeightRow& row, std::size_t number, const Tensor& into) const {
  const auto& part = row.from[number];
  const auto speaker = text(folder_.string(), ": tensor '", found(part), "'");
  if (const auto* weight = packed(part)) {
    std::vector<float> values(static_cast<std::size_t>(weight->array->size()));
    weight->array->unpack(0, values);
    const Tensor all(std::span<float>(values), weight->shape);
    checkpoint::must_be_finite(all, speaker);
    return checkpoint::copy_converted(all, into);
  }
  const auto stored = files_->whole(found(part));
  const auto& whole = stored.tensor;
  const auto elements = row.expert ? whole.slice(*row.expert, 1).reshaped(into.shape()) : whole;
  checkpoint::must_be_finite(elements, speaker);
  checkpoint::copy_converted(elements, into);
}

std::optional<checkpoint::MappedTensor> HuggingFaceModel::map(const checkpoint::TensorRange& range) const {
  const auto& wanted = row(range.name);
  if (wanted.from.size() != 1 || !wanted.steps.empty() || wanted.expert || packed(wanted.from.front()) != nullptr)
    return std::nullopt;
  const auto whole = files_->mapped_whole(found(wanted.from.front()));
  if (!whole || whole->tensor.shape() != range.global_shape) return std::nullopt;
  auto mapped =
      checkpoint::part_of(*whole, Box::whole(range.global_shape), Box::of(range.offsets, range.tensor.shape()),
                          range.tensor.dtype(), range.tensor.shape());
  files_->require_intact();
  return mapped;
}

bool HuggingFaceModel::append_part(StoredMatrix& matrix, const std::string& part, const RowsOfPart& rows,
                                   std::int64_t column) const {
  const auto* weight = packed(part);
  if (weight == nullptr) {
    auto whole = files_->mapped_whole(found(part));
    if (!whole) return false;
    const auto& shape = whole->tensor.shape();
    whole->tensor =
        whole->tensor.reshaped({shape[0], shape.elements() / shape[0]});  // the row of a filter is flat in ours
    return append_rows(matrix, *whole, rows.row, rows.rows, column);
  }
  const auto width = weight->shape[1];
  matrix.blocks.push_back(
      {.rows = rows.rows, .first = rows.row * width + column, .stride = width, .plain = {}, .packed = weight->array});
  for (const auto& file : weight->files)
    if (std::ranges::find(matrix.files, file) == matrix.files.end()) matrix.files.push_back(file);
  return true;
}

std::optional<StoredMatrix> HuggingFaceModel::stored(const checkpoint::TensorRange& range) const {
  const auto& wanted = row(range.name);
  const auto shapes = part_shapes(wanted);
  if (range.global_shape.rank() != 2 || shape_of(wanted, shapes) != range.global_shape) return std::nullopt;
  const auto& extent = range.tensor.shape();
  const auto pieces = rows_in_parts(wanted, shapes, range.offsets[0], extent[0]);
  if (!pieces) return std::nullopt;
  StoredMatrix out{.width = extent[1], .blocks = {}, .files = {}};
  for (const auto& piece : *pieces)
    if (!append_part(out, wanted.from[piece.part], piece, range.offsets[1])) return std::nullopt;
  files_->require_intact();
  return out;
}

std::string_view HuggingFaceModel::storage_type(const std::string& name) const {
  for (const auto& part : row(name).from)
    if (const auto* weight = packed(part)) return weight->array->storage_type();
  return {};
}

void HuggingFaceModel::read(const std::string& name, std::span<float> into) const {
  const auto extent = shape(name);
  must(static_cast<std::int64_t>(into.size()) == extent.elements(),
       "the memory for an imported tensor holds its elements");
  read(name, Tensor(into, extent));
}

std::vector<HuggingFaceModel::Theirs> HuggingFaceModel::theirs(const std::string& name,
                                                               std::span<const float> elements) const {
  const auto& wanted = row(name);
  const auto shapes = part_shapes(wanted);
  const auto bytes = std::as_bytes(elements);
  const auto joined = to_theirs(wanted, {bytes.begin(), bytes.end()}, sizeof(float), shapes);
  std::vector<Theirs> out;
  const auto* at = joined.data();
  for (std::size_t i = 0; i < wanted.from.size(); ++i) {
    std::vector<float> part(static_cast<std::size_t>(shapes[i].elements()));
    std::memcpy(part.data(), at, part.size() * sizeof(float));
    at += part.size() * sizeof(float);
    auto own = found(wanted.from[i]);
    if (wanted.expert) own += text("[", *wanted.expert, "]");
    out.push_back({std::move(own), shapes[i], std::move(part)});
  }
  return out;
}

}  // namespace tessera::hugging_face
