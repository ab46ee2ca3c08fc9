#include "tests/architecture/folders.h"

#include <algorithm>
#include <fstream>
#include <map>
#include <regex>
#include <set>

namespace tessera::architecture {
namespace {

namespace fs = std::filesystem;

struct Include {
  std::string file, folder;  ///< the source, by its path from the root, and its folder
  std::size_t line;
  bool quoted;
  std::string header;

  std::string place() const { return file + ":" + std::to_string(line); }
  std::string header_folder() const { return fs::path(header).parent_path().generic_string(); }
};

void add_includes(const fs::path& source, const fs::path& root, std::vector<Include>& all) {
  static const std::regex include(R"re(^\s*#\s*include\s*([<"])([^">]+)[">].*)re");
  const auto name = fs::relative(source, root);
  std::ifstream file(source);
  std::smatch found;
  std::size_t number = 0;
  for (std::string line; std::getline(file, line);) {
    ++number;
    if (line.find("include") != std::string::npos && std::regex_match(line, found, include))
      all.push_back({name.generic_string(), name.parent_path().generic_string(), number, found[1] == "\"", found[2]});
  }
}

std::vector<Include> includes_below(const fs::path& root, const std::string& top) {
  std::vector<Include> all;
  if (!fs::exists(root / top)) return all;
  std::vector<fs::path> sources;
  for (const auto& entry : fs::recursive_directory_iterator(root / top))
    if (entry.path().extension() == ".h" || entry.path().extension() == ".cpp") sources.push_back(entry.path());
  std::sort(sources.begin(), sources.end());
  for (const auto& source : sources) add_includes(source, root, all);
  return all;
}

using Graph = std::map<std::string, std::set<std::string>>;

void reach(const Graph& graph, const std::string& from, std::set<std::string>& reached) {
  const auto node = graph.find(from);
  if (node == graph.end()) return;
  for (const auto& next : node->second)
    if (reached.insert(next).second) reach(graph, next, reached);
}

/// The folders at the top whose files a file of ours may include, for each folder at the top.
const std::map<std::string, std::set<std::string>>& allowed_tops() {
  static const std::map<std::string, std::set<std::string>> all = {{"launch", {"framework", "launch"}},
                                                                   {"tests", {"framework", "launch", "tests"}},
                                                                   {"benchmarks", {"framework", "benchmarks"}}};
  return all;
}

/// Whether launch/ may include a header in angle brackets: of the system, or of its own external libraries.
bool may_be_in_launch(const std::string& header) {
  static const std::regex foreign("[a-z][a-z0-9_-]*\\+?/.*|hwloc\\.h"), of_system("(sys|netinet|arpa|linux|net)/.*"),
      allowed("hwloc\\.h|openssl/.*|nlohmann/json\\.hpp");
  return !std::regex_match(header, foreign) || std::regex_match(header, of_system) || std::regex_match(header, allowed);
}

std::string complaint_about(const Include& one, const std::string& top) {
  if (!one.quoted)
    return top == "launch" && !may_be_in_launch(one.header) ? "may not include <" + one.header + ">" : "";
  const auto other = fs::path(one.header).begin()->string();
  if (allowed_tops().at(top).count(other)) return "";
  if (other == "framework" || allowed_tops().count(other)) return "may not include " + other + "/";
  return "includes \"" + one.header + "\"; a file of ours is named by its path from the root";
}

}  // namespace

std::vector<std::string> includes_in_a_cycle_of_folders(const fs::path& root) {
  std::vector<Include> all;
  for (const auto* top : {"framework", "launch", "tests", "benchmarks"})
    for (auto& one : includes_below(root, top))
      if (one.quoted && one.folder != one.header_folder()) all.push_back(std::move(one));
  Graph graph;
  for (const auto& one : all) graph[one.folder].insert(one.header_folder());
  std::map<std::string, std::set<std::string>> reached;
  for (const auto& [folder, others] : graph) reach(graph, folder, reached[folder]);
  std::vector<std::string> found;
  for (const auto& one : all)
    if (const auto back = reached.find(one.header_folder()); back != reached.end() && back->second.count(one.folder))
      found.push_back(one.place() + " includes " + one.header + ", whose folder includes " + one.folder);
  return found;
}

std::vector<std::string> forbidden_includes_beside_the_framework(const fs::path& root) {
  std::vector<std::string> found;
  for (const auto& [top, allowed] : allowed_tops())
    for (const auto& one : includes_below(root, top))
      if (const auto why = complaint_about(one, top); !why.empty()) found.push_back(one.place() + " " + why);
  return found;
}

}  // namespace tessera::architecture
