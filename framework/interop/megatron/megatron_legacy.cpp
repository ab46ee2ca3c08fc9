#include "framework/interop/megatron/megatron_legacy.h"

#include <algorithm>
#include <cstring>

#include "framework/base/error.h"

namespace tessera::megatron {
namespace {

using Named = std::vector<std::pair<std::string, const torch::PickleNode*>>;

constexpr const char* fused = ".query_key_value.";
constexpr int most_dicts = 4;                  // one in the other: model, language_model, embedding, word_embeddings
constexpr std::size_t most_tensors = 1000000;  // a dict may contain the same dict twice

void add_tensors(const torch::PickleNode& node, const std::string& name, int depth, Named& all) {
  if (node.kind != torch::PickleNode::Kind::dict) {
    all.emplace_back(name, &node);
    return;
  }
  if (depth == most_dicts || all.size() > most_tensors)
    throw ConfigError(text("'", name, "' of its model is not a tensor but a dict in ", most_dicts,
                           " others, which no version of Megatron-LM saves"));
  for (std::size_t i = 0; i + 1 < node.items.size(); i += 2)
    add_tensors(*node.items[i + 1], name.empty() ? node.items[i]->text : text(name, ".", node.items[i]->text),
                depth + 1, all);
}

bool has_end(const std::string& name, const std::string& end) {
  return name.size() >= end.size() && name.compare(name.size() - end.size(), end.size(), end) == 0;
}

[[noreturn]] void refuse_part(const std::string& theirs) {
  throw ConfigError(text("'", theirs,
                         "' belongs to a part that GPT models do not have, or have with another computation; of models "
                         "from before Megatron core (with a language_model), GPT without experts is read"));
}

}  // namespace

Named tensors_by_name(const torch::PickleNode& model) {
  Named all;
  add_tensors(model, "", 0, all);
  return all;
}

std::string core_name_of_legacy(const std::string& theirs, const options::Value& table) {
  const auto& legacy = *table.find("legacy");
  std::string name;
  for (const auto& [begin, ours] : legacy.find("begins")->fields)
    if (name.empty() && theirs.rfind(begin, 0) == 0) name = ours.scalar + theirs.substr(begin.size());
  if (name.empty()) {
    if (theirs.rfind("language_model.", 0) == 0) refuse_part(theirs);
    return theirs;
  }
  for (const auto& end : legacy.find("ignored")->items)
    if (has_end(name, end.scalar)) return "";
  for (const auto& part : legacy.find("refused")->items)
    if (name.find(part.scalar) != std::string::npos) refuse_part(theirs);
  for (const auto& [part, ours] : legacy.find("parts")->fields)
    if (const auto at = name.find(part); at != std::string::npos) name.replace(at, part.size(), ours.scalar);
  return name;
}

FusedRows fused_rows(const std::string& theirs, double checkpoint_version) {
  if (theirs.find(fused) == std::string::npos || checkpoint_version >= 2) return FusedRows::by_head;
  return checkpoint_version >= 1 ? FusedRows::parts_last : FusedRows::parts_first;
}

void copy_by_head(const Tensor& from, FusedRows rows, std::int64_t heads, std::span<std::byte> into) {
  const auto count = from.shape()[0], channels = count / (3 * heads);
  const auto size = from.bytes() / static_cast<std::size_t>(count);
  std::int64_t to = 0;
  for (std::int64_t head = 0; head < heads; ++head)
    for (std::int64_t part = 0; part < 3; ++part)
      for (std::int64_t channel = 0; channel < channels; ++channel) {
        const auto row = rows == FusedRows::parts_first ? (part * heads + head) * channels + channel
                                                        : (head * channels + channel) * 3 + part;
        std::memcpy(into.data() + static_cast<std::size_t>(to++) * size,
                    from.raw().data() + static_cast<std::size_t>(row) * size, size);
      }
}

}  // namespace tessera::megatron
