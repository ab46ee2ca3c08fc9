#include "framework/checkpoint/hugging_face.h"

#include <algorithm>
#include <charconv>
#include <set>

#include "framework/checkpoint/convert.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

std::int64_t number(const Value& config, const std::string& key, std::int64_t otherwise) {
  const auto* value = config.find(key);
  if (value == nullptr) return otherwise;
  std::int64_t out = 0;
  const auto* end = value->scalar.data() + value->scalar.size();
  const auto [stop, error] = std::from_chars(value->scalar.data(), end, out);
  if (error != std::errc{} || stop != end)
    throw ConfigError(text(value->origin, ": ", key, " is ", *value, "; a whole number was expected"));
  return out;
}

std::int64_t needed(const Value& config, const fs::path& folder, const std::string& key) {
  const auto value = number(config, key, 0);
  if (value < 1) throw ConfigError(text((folder / "config.json").string(), ": does not give ", key));
  return value;
}

bool is_true(const Value& config, const std::string& key) {
  const auto* value = config.find(key);
  return value != nullptr && value->scalar == "true";
}

HeadLayout heads_of(const Value& config, const fs::path& folder) {
  const auto heads = needed(config, folder, "num_attention_heads");
  const auto groups = is_true(config, "group_query_attention") ? number(config, "num_query_groups", heads) : heads;
  return {heads, groups, number(config, "kv_channels", needed(config, folder, "hidden_size") / heads)};
}

std::string list_of(const std::vector<std::string>& names) {
  constexpr std::size_t most = 8;
  std::string list;
  for (std::size_t i = 0; i < std::min(most, names.size()); ++i) list += "\n  " + names[i];
  if (names.size() > most) list += text("\n  and ", names.size() - most, " more");
  return list;
}

}  // namespace

HuggingFaceModel::HuggingFaceModel(const fs::path& folder, const Mappings& mappings)
    : folder_(folder),
      config_(read_hugging_face_config(folder / "config.json", mappings)),
      files_(folder),
      table_(mappings.table(config_.weights_table), needed(config_.model_config, folder, "num_layers"),
             heads_of(config_.model_config, folder),
             [this](const std::string& key) { return is_true(config_.model_config, key); }) {
  for (std::size_t i = 0; i < table_.rows().size(); ++i) rows_.emplace(table_.rows()[i].name, i);
  refuse_missing_and_left_over();
  for (const auto& row : table_.rows()) shape_of(row, part_shapes(row), table_.heads());
}

std::string HuggingFaceModel::found(const std::string& name) const {
  auto prefixed = table_.optional_prefix() + name;
  if (files_.has(prefixed)) return prefixed;
  return files_.has(name) ? name : "";
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
  const auto& prefix = table_.optional_prefix();
  for (const auto& name : files_.names()) {
    const auto bare = !prefix.empty() && name.rfind(prefix, 0) == 0 ? name.substr(prefix.size()) : name;
    if (taken.count(name) == 0 && !table_.ignores(bare)) left_over.push_back(name);
  }
  if (missing.empty() && left_over.empty()) return;
  throw ConfigError(text(folder_.string(), ": the tensors are not those that config.json promises",
                         missing.empty() ? "" : "\n missing:" + list_of(missing),
                         left_over.empty() ? "" : "\n not known:" + list_of(left_over)));
}

std::vector<std::string> HuggingFaceModel::names() const {
  std::vector<std::string> names;
  for (const auto& row : table_.rows()) names.push_back(row.name);
  return names;
}

const WeightRow& HuggingFaceModel::row(const std::string& name) const {
  const auto at = rows_.find(name);
  if (at == rows_.end()) throw ConfigError(text(folder_.string(), ": has nothing for tensor '", name, "'"));
  return table_.rows()[at->second];
}

std::vector<Shape> HuggingFaceModel::part_shapes(const WeightRow& row) const {
  std::vector<Shape> shapes;
  for (const auto& name : row.from) shapes.push_back(files_.shape(found(name)));
  return shapes;
}

Shape HuggingFaceModel::shape(const std::string& name) const {
  const auto& wanted = row(name);
  return shape_of(wanted, part_shapes(wanted), table_.heads());
}

void HuggingFaceModel::read(const std::string& name, std::span<float> into) const {
  const auto& wanted = row(name);
  const auto shapes = part_shapes(wanted);
  must(static_cast<std::int64_t>(into.size()) == shape_of(wanted, shapes, table_.heads()).elements(),
       "the memory for an imported tensor holds its elements");
  std::vector<float> joined(wanted.steps.empty() ? 0 : into.size());
  auto target = wanted.steps.empty() ? into : std::span(joined);
  for (std::size_t i = 0; i < wanted.from.size(); ++i) {
    const auto count = static_cast<std::size_t>(shapes[i].elements());
    copy_converted(files_.tensor(found(wanted.from[i])), Tensor(target.first(count), shapes[i]));
    target = target.subspan(count);
  }
  if (wanted.steps.empty()) return;
  const auto ours = to_ours(wanted, std::move(joined), shapes, table_.heads());
  std::copy(ours.begin(), ours.end(), into.begin());
}

std::vector<HuggingFaceModel::Theirs> HuggingFaceModel::theirs(const std::string& name,
                                                               std::span<const float> elements) const {
  const auto& wanted = row(name);
  const auto shapes = part_shapes(wanted);
  const auto joined = to_theirs(wanted, {elements.begin(), elements.end()}, shapes, table_.heads());
  std::vector<Theirs> out;
  auto at = joined.begin();
  for (std::size_t i = 0; i < wanted.from.size(); ++i) {
    const auto end = at + static_cast<std::ptrdiff_t>(shapes[i].elements());
    out.push_back({found(wanted.from[i]), shapes[i], {at, end}});
    at = end;
  }
  return out;
}

}  // namespace tessera
