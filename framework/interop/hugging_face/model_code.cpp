#include "framework/interop/hugging_face/model_code.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <sstream>

#include "framework/base/files.h"
#include "framework/base/json.h"

namespace tessera::hugging_face {
namespace {

namespace fs = std::filesystem;

constexpr std::array<const char*, 2> files_with_code = {"config.json", "tokenizer_config.json"};

/// Whether it is the name of a Python module, not a path.
bool is_module(const std::string& name) {
  return !name.empty() &&
         std::all_of(name.begin(), name.end(), [](unsigned char c) { return std::isalnum(c) != 0 || c == '_'; });
}

/// One class, or a list of them, some of which may be null: the slow and the fast tokenizer.
std::vector<std::string> classes_of(const Json& given) {
  std::vector<std::string> all;
  for (const auto& one : given.is_array() ? given : Json::array({given}))
    if (one.is_string()) all.push_back(one.string());
  return all;
}

/// "modeling_x" of "modeling_x.MyModel".
std::string module_of(const std::string& name) { return name.substr(0, name.rfind('.')); }

/// Whether the class is of another folder, "user/model--modeling_x.MyModel".
bool is_elsewhere(const std::string& name) { return name.find("--") != std::string::npos; }

Json auto_map_of(const Json& config) { return config.is_object() ? config.value("auto_map", Json()) : Json(); }

/// The modules that Python code imports from beside it: "x" of "from .x import Y".
std::vector<std::string> imported_beside(const std::string& code) {
  const std::string start = "from .";
  std::vector<std::string> modules;
  std::istringstream lines(code);
  for (std::string line; std::getline(lines, line);) {
    const auto at = line.find_first_not_of(" \t");
    if (at == std::string::npos || line.compare(at, start.size(), start) != 0) continue;
    const auto first = at + start.size();
    modules.push_back(line.substr(first, std::min(line.find_first_of(" \t", first), line.size()) - first));
  }
  return modules;
}

}  // namespace

std::vector<std::string> code_files(const fs::path& folder) {
  std::vector<std::string> files;
  const auto take = [&](const std::string& module) {
    const auto file = module + ".py";
    if (is_module(module) && std::find(files.begin(), files.end(), file) == files.end() &&
        fs::is_regular_file(folder / file))
      files.push_back(file);
  };
  for (const auto* name : files_with_code) {
    if (!fs::exists(folder / name)) continue;
    const auto map = auto_map_of(parse_json(read_file(folder / name)));
    if (!map.is_object()) continue;
    for (const auto& [kind, given] : map.items())
      for (const auto& one : classes_of(given)) take(module_of(one));
  }
  for (std::size_t i = 0; i < files.size(); ++i)
    for (const auto& module : imported_beside(read_file(folder / files[i]))) take(module);
  return files;
}

std::vector<std::string> drop_absent_code(checkpoint::Blobs& files) {
  const auto is_absent = [&](const std::string& name) {
    return !is_elsewhere(name) && !files.contains(module_of(name) + ".py");
  };
  std::vector<std::string> notes;
  for (const std::string file : files_with_code) {
    const auto found = files.find(file);
    if (found == files.end()) continue;
    auto config = parse_json(found->second);
    const auto map = auto_map_of(config);
    if (!map.is_object()) continue;
    auto kept = Json::object();
    std::vector<std::string> dropped;
    for (const auto& [kind, given] : map.items()) {
      const auto classes = classes_of(given);
      if (std::any_of(classes.begin(), classes.end(), is_absent))
        dropped.push_back(kind);
      else
        kept.put(kind, given);
    }
    if (dropped.empty()) continue;
    if (kept.empty())
      config.erase("auto_map");
    else
      config["auto_map"] = kept;
    found->second = config.dump(2) + "\n";
    notes.push_back(text(file, ": auto_map is written without ", joined(dropped),
                         ", because the Python files that it names are not beside the model"));
  }
  return notes;
}

}  // namespace tessera::hugging_face
