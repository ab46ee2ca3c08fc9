#include "framework/interop/flags/launcher_table.h"

#include <algorithm>
#include <cctype>
#include <sstream>

#include "framework/interop/shell/script_evaluator.h"

namespace tessera::flags {
namespace {

std::vector<std::string> scalars(const options::Value* list) {
  std::vector<std::string> out;
  if (list != nullptr)
    for (const auto& item : list->items) out.push_back(item.scalar);
  return out;
}

LauncherTable::Row row_of(const std::string& name, const options::Value& value, bool before) {
  LauncherTable::Row row{
      .name = name, .bare = scalars(value.find("bare")), .two = scalars(value.find("two")), .before = before};
  if (const auto* words = value.find("words")) row.words = std::stoi(words->scalar);
  return row;
}

std::string last_part(const std::string& path) { return path.substr(path.rfind('/') + 1); }

/// "/usr/bin/python3.10" -> "python"
std::string name_of(const std::string& word) {
  auto name = last_part(word);
  if (name.compare(0, 6, "python") == 0 && name.find_first_not_of("0123456789.", 6) == std::string::npos)
    name = "python";
  return name;
}

bool any_fits(const std::string& name, const std::vector<std::string>& patterns) {
  return std::any_of(patterns.begin(), patterns.end(),
                     [&](const auto& one) { return shell::fits(name, one, false, [](long) {}); });
}

}  // namespace

LauncherTable::LauncherTable(const options::Mappings& mappings) {
  const auto table = mappings.table("launchers/launchers.yaml");
  for (const char* part : {"launchers", "before"})
    if (const auto* rows = table.find(part))
      for (const auto& [name, row] : rows->fields) rows_.push_back(row_of(name, row, std::string(part) == "before"));
  std::stable_sort(rows_.begin(), rows_.end(),
                   [](const auto& a, const auto& b) { return a.name.size() > b.name.size(); });
  training_ = scalars(table.at("programs.training"));
  others_ = scalars(table.at("programs.not"));
}

bool LauncherTable::trains(const std::string& program) const {
  const auto name = last_part(program);
  return any_fits(name, training_) && !any_fits(name, others_);
}

const LauncherTable::Row* LauncherTable::find(const std::vector<std::string>& words, std::size_t& at) const {
  for (const auto& row : rows_) {
    std::istringstream names(row.name);
    auto i = at;
    bool same = true;
    for (std::string name; same && names >> name; ++i) {
      if (i > at && row.name.compare(0, 6, "python") == 0)  // python -u -m torch.distributed.launch
        while (i < words.size() && words[i].size() == 2 && words[i][0] == '-' && words[i] != "-m") ++i;
      same = i < words.size() && (i == at ? name_of(words[i]) : words[i]) == name;
    }
    if (!same) continue;
    at = i;
    return &row;
  }
  return nullptr;
}

}  // namespace tessera::flags
