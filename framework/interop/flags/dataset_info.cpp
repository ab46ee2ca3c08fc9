#include "framework/interop/flags/dataset_info.h"

#include <algorithm>
#include <filesystem>

#include "framework/base/error.h"
#include "framework/base/files.h"
#include "framework/base/json.h"
#include "framework/options/report.h"

namespace tessera::flags {
namespace {

namespace fs = std::filesystem;

// Of LLaMA-Factory's get_dataset_list: the keys of an entry that change nothing here, or are read below.
constexpr const char* known_keys[] = {"file_name", "formatting", "ranking",    "columns",   "tags",
                                      "split",     "hf_hub_url", "ms_hub_url", "om_hub_url"};
constexpr const char* known_columns[] = {"prompt", "query",    "response", "history", "system",
                                         "tools",  "messages", "chosen",   "rejected"};

// Templates with the texts of a prompt type of MindSpeed-LLM. Others of the same names differ, as in the system message
// of qwen or in the line break behind the last answer of chatml.
constexpr std::pair<const char*, const char*> same_templates[] = {
    {"empty", "empty"}, {"llama2", "llama2"},      {"llama3", "llama3"},
    {"qwen3", "qwen3"}, {"chatglm3", "chatglm3"},  {"qwen3_nothink", "qwen3_nothink"},
    {"glm4", "glm4"},   {"deepseek", "deepseek2"}, {"deepseek3", "deepseek3"}};

template <std::size_t N>
bool is_one_of(const std::string& name, const char* const (&known)[N]) {
  return std::any_of(std::begin(known), std::end(known), [&](const char* one) { return name == one; });
}

std::string word_of(const Json& entry, const char* key, const std::string& otherwise) {
  const auto* value = entry.find(key);
  if (!value || value->is_null()) return otherwise;
  if (!value->is_string()) throw ConfigError(text("'", key, "' is ", value->dump(), ", not a text; correct it"));
  return value->string();
}

bool says_true(const Json& entry, const char* key) {
  const auto* value = entry.find(key);
  if (!value || value->is_null()) return false;
  if (!value->is_boolean()) throw ConfigError(text("'", key, "' is ", value->dump(), ", not true or false"));
  return value->boolean();
}

std::vector<std::string> files_of(const Json& entry, const fs::path& folder) {
  const auto name = word_of(entry, "file_name", "");
  if (name.empty())
    throw ConfigError("has no 'file_name': nothing is downloaded; fetch the data and give its file as file_name");
  const auto path = folder / name;
  if (!fs::exists(path)) throw ConfigError(text("its file ", path.string(), " does not exist; put it there"));
  if (!fs::is_directory(path)) return {path.string()};
  std::vector<std::string> all;
  for (const auto& file : list_folder(path)) all.push_back(file.string());
  std::sort(all.begin(), all.end());
  if (all.empty()) throw ConfigError(text("its folder ", path.string(), " has no file"));
  return all;
}

// The object of --map-keys: MindSpeed-LLM's names of columns and tags are those of LLaMA-Factory.
std::string map_keys_of(const Json& entry, bool sharegpt, bool pairs) {
  Json keys = Json::object();
  if (const auto* columns = entry.find("columns"); columns && !columns->is_null()) {
    for (const auto& [name, value] : columns->items()) {
      if (!is_one_of(name, known_columns))
        throw ConfigError(text("its column '", name, "' is not supported; texts, chosen and rejected are read"));
      if (name == "tools" && !value.is_null())
        throw ConfigError("its column 'tools' is not supported; remove it, or the rows that call functions");
      const bool of_messages = name == "messages";
      const bool of_rows = name == "prompt" || name == "query" || name == "response" || name == "history";
      if ((sharegpt && of_rows) || (!sharegpt && of_messages) || (pairs && name == "response")) continue;
      if (name != "tools") keys.put(name, value);
    }
    // Of columns that are listed, those that are left out are not read.
    if (!sharegpt && !keys.contains("query")) keys.put("query", nullptr);
  }
  if (const auto* tags = entry.find("tags"); tags && !tags->is_null() && sharegpt) keys.put("tags", *tags);
  return keys.empty() ? "" : keys.dump();
}

DatasetInfo info_of(const Json& entry, const fs::path& folder) {
  for (const auto& [name, value] : entry.items())
    if (!is_one_of(name, known_keys) && !value.is_null())
      throw ConfigError(text("its key '", name, "' is not supported; remove it, and what it selects from the file"));
  const auto formatting = word_of(entry, "formatting", "alpaca");
  if (formatting != "alpaca" && formatting != "sharegpt")
    throw ConfigError(text("its formatting is '", formatting, "'; alpaca and sharegpt are supported"));
  DatasetInfo out;
  out.pairs = says_true(entry, "ranking");
  const bool sharegpt = formatting == "sharegpt";
  out.handler_name = text(sharegpt ? "Sharegpt" : "Alpaca", "Style", out.pairs ? "Pairwise" : "Instruction", "Handler");
  out.map_keys = map_keys_of(entry, sharegpt, out.pairs);
  out.files = files_of(entry, folder);
  return out;
}

Json parse_file(const fs::path& file) {
  try {
    auto json = parse_json(read_file(file));
    if (!json.is_object()) throw ConfigError(text(file.string(), ": is not a JSON object; correct the file"));
    return json;
  } catch (const JsonError& error) {
    throw ConfigError(text(file.string(), ": ", error.what()));
  }
}

}  // namespace

std::string prompt_type_of_template(const std::string& name) {
  for (const auto& [theirs, ours] : same_templates)
    if (name == theirs) return ours;
  return "";
}

DatasetInfo read_dataset_info(const std::string& folder, const std::vector<std::string>& names) {
  const auto file = fs::path(folder) / "dataset_info.json";
  const auto all = parse_file(file);
  DatasetInfo out;
  for (const auto& name : names) {
    const auto* entry = all.find(name);
    if (!entry || !entry->is_object()) {
      std::vector<std::string> known;
      for (const auto& [other, value] : all.items()) known.push_back(other);
      const auto hint = options::did_you_mean(name, known);
      throw ConfigError(text(file.string(), ": has no data set '", name, "'; ",
                             hint.empty() ? "add it, or give the name of another" : hint));
    }
    try {
      auto one = info_of(*entry, folder);
      if (out.files.empty()) {
        out = std::move(one);
        continue;
      }
      if (one.handler_name != out.handler_name || one.map_keys != out.map_keys)
        throw ConfigError(text("has other columns than '", names.front(), "'; one form is read, convert one of them"));
      out.files.insert(out.files.end(), one.files.begin(), one.files.end());
    } catch (const ConfigError& error) {
      throw ConfigError(text(file.string(), ": data set '", name, "': ", error.what()));
    }
  }
  return out;
}

}  // namespace tessera::flags
