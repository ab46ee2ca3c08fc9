#include "framework/interop/flags/guess.h"

#include <algorithm>
#include <map>
#include <set>
#include <sstream>

#include "framework/base/error.h"

namespace tessera::flags {
namespace {

const std::string guess_folder = "flags/";

/// The flags of a table, without reading what they become: that would take longer than all else.
struct FlagNames {
  std::string name, doc;
  std::set<std::string> flags;
};

/// Rows stand on lines of their own, two blanks in: "  --lr: ...".
FlagNames names_in(const std::string& file, const options::Mappings& mappings, int depth = 0) {
  FlagNames out;
  std::set<std::string> own;
  std::istringstream lines(mappings.text(guess_folder + file));
  bool underscores = false;
  for (std::string line; std::getline(lines, line);) {
    const auto rest = line.find(": ") == std::string::npos ? std::string() : line.substr(line.find(": ") + 2);
    if (line.rfind("  --", 0) == 0 || line.rfind("  \"--", 0) == 0) {
      const auto start = line.find('-');
      own.insert(line.substr(start, line.find_first_of(":\" ", start) - start));
    } else if (line.rfind("base: ", 0) == 0 && depth < 10) {
      out.flags = names_in(rest, mappings, depth + 1).flags;
    } else if (line.rfind("name: ", 0) == 0) {
      out.name = rest;
    } else if (line.rfind("doc: ", 0) == 0) {
      out.doc = rest;
    } else if (line == "spelled: underscores") {
      underscores = true;
    }
  }
  for (auto flag : out.flags) {
    if (underscores) std::replace(flag.begin() + 2, flag.end(), '-', '_');
    own.insert(flag);
  }
  out.flags = std::move(own);
  return out;
}

std::map<std::string, FlagNames> all_names(const options::Mappings& mappings) {
  std::map<std::string, FlagNames> all;
  for (const auto& file : mappings.names())
    if (file.rfind(guess_folder, 0) == 0) {
      auto names = names_in(file.substr(guess_folder.size()), mappings);
      all[names.name] = names;
    }
  return all;
}

/// What in the launch fits the sign; empty when nothing does.
std::string shown_by(const options::Value& sign, const Launch& launch) {
  const auto* program = sign.find("program");
  if (program && launch.program.find(program->scalar) != std::string::npos) return launch.program;
  const auto* launcher = sign.find("launcher");
  if (launcher && launch.launcher.find(launcher->scalar) != std::string::npos) return launch.launcher;
  const auto* flag = sign.find("flag");
  const auto* value = sign.find("value");
  for (const auto& given : launch.flags) {
    if (!flag || given.flag != flag->scalar) continue;
    if (!value) return given.flag;
    for (const auto& word : given.values)
      if (word.rfind(value->scalar, 0) == 0) return given.flag + " " + word;
  }
  return "";
}

}  // namespace

Guess guess_source(const Launch& launch, const options::Mappings& mappings) {
  const auto table = mappings.table("sources.yaml");
  const auto all = all_names(mappings);
  for (const auto& sign : table.find("signs")->items) {
    const auto& name = sign.find("table")->scalar;
    const auto shown = shown_by(sign, launch);
    if (!shown.empty() && all.count(name)) return {name, text(shown, " is ", all.at(name).doc, "'s")};
  }
  Guess best{FlagTable::usual, "nothing shows another"};
  std::size_t fewest = launch.flags.size() + 1, usual = 0;
  std::string telling;
  for (const auto& name : table.find("tables")->items) {
    const auto names = all.find(name.scalar);
    if (names == all.end()) continue;
    std::string first;
    std::size_t unknown = 0;
    for (const auto& given : launch.flags) unknown += names->second.flags.count(given.flag) == 0;
    if (name.scalar == FlagTable::usual) usual = unknown;
    if (unknown >= fewest) continue;
    fewest = unknown;
    best.table = name.scalar;
  }
  if (best.table == FlagTable::usual) return best;
  for (const auto& given : launch.flags)
    if (telling.empty() && !all.at(FlagTable::usual).flags.count(given.flag) &&
        all.at(best.table).flags.count(given.flag))
      telling = given.flag;
  best.why = text("it knows ", usual - fewest, " more of its flags, ", telling, " first");
  return best;
}

}  // namespace tessera::flags
