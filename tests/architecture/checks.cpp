#include "tests/architecture/checks.h"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <regex>
#include <sstream>

namespace tessera::architecture {
namespace {

namespace fs = std::filesystem;

std::string read(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::vector<std::string> lines_of(const fs::path& path) {
  std::istringstream file(read(path));
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(line);
  return lines;
}

bool is_source(const fs::path& path) { return path.extension() == ".h" || path.extension() == ".cpp"; }

std::vector<fs::path> files_below(const fs::path& folder) {
  std::vector<fs::path> files;
  if (!fs::exists(folder)) return files;
  for (const auto& entry : fs::recursive_directory_iterator(folder))
    if (entry.is_regular_file()) files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  return files;
}

/// A library whose headers only some components may include.
struct Owned {
  std::regex header;
  std::set<std::string> components;
};

const std::vector<Owned>& owned_headers() {
  static const std::vector<Owned> all = {
      {std::regex("yaml-cpp/.*"), {"options"}},
      {std::regex("(cblas|hwy/.*|openblas.*|dnnl.*|immintrin)(\\.h(pp)?)?"), {"kernels"}},
      {std::regex("mpi\\.h"), {"comm"}},
      {std::regex("CLI/.*"), {"cli"}},
      {std::regex("spdlog/.*"), {"log"}},
      {std::regex("fmt/.*"), {"reporting"}},
      {std::regex("(zlib|lzma|zstd|zstd_errors)\\.h"), {"files", "parquet"}},
      {std::regex("snappy.*"), {"parquet"}},
      {std::regex("(png|jpeglib|jerror)\\.h|webp/.*"), {"images"}},
      {std::regex("httplib\\.h"), {"watch"}},
      {std::regex("sentencepiece.*"), {"tokenizers"}},
      {std::regex("nlohmann/.*|simdjson.*"), {"tests"}},
      {std::regex("hwloc.*|openssl/.*"), {}}};  // launch/ uses them
  return all;
}

/// "a/" or "a/ and b/".
std::string in_words(const std::set<std::string>& components) {
  std::string all;
  for (const auto& one : components) all += (all.empty() ? "" : " and ") + one + "/";
  return all.empty() ? "launch/" : all;
}

/// The component that a file below framework/ belongs to: the longest of the folders above it that is one. The first
/// folder where none is.
std::string component_of(const fs::path& file, const Components& components) {
  for (auto folder = file.parent_path(); !folder.empty(); folder = folder.parent_path())
    if (components.count(folder.generic_string())) return folder.generic_string();
  return file.begin()->string();
}

std::string complaint_about(const std::string& header, bool quoted, const std::string& component,
                            const Components& components) {
  std::smatch found;
  if (std::regex_match(header, found, std::regex("framework/(\\w+/.*)"))) {
    const auto allowed = components.find(component);
    if (allowed == components.end()) return "is in a component that framework/CMakeLists.txt does not name";
    const auto other = component_of(found[1].str(), components);
    return allowed->second.count(other) ? "" : "may not include " + other + "/";
  }
  for (const auto& owned : owned_headers())
    if (std::regex_match(header, owned.header) && !owned.components.count(component))
      return "may not include <" + header + ">; only " + in_words(owned.components) + " may";
  return quoted ? "includes \"" + header + "\"; a file of ours is named \"framework/component/file.h\"" : "";
}

bool has_any(const std::string& line, std::initializer_list<const char*> words) {
  return std::any_of(words.begin(), words.end(), [&](const char* one) { return line.find(one) != std::string::npos; });
}

std::string untidy(const std::string& line, bool source) {
  static const std::regex mark(
      "\\b(TO"
      "DO|FIX"
      "ME|XX"
      "X)\\b");
  static const std::regex machine("(^|[\\s\"'(=:])/(home|root|work|Users|mnt|farm)/");
  // std::regex takes a microsecond for each character: it looks only at lines that could match.
  if (has_any(line, {"DO", "ME", "XX"}) && std::regex_search(line, mark))
    return "a mark of unfinished work; finish it or say in words what is missing";
  if (has_any(line, {"home/", "root/", "work/", "Users/", "mnt/", "farm/"}) && std::regex_search(line, machine))
    return "a path of one machine";
  if (!line.empty() && (line.back() == ' ' || line.back() == '\t')) return "trailing blanks";
  if (line.find('\r') != std::string::npos) return "a carriage return";
  if (source && line.find('\t') != std::string::npos) return "a tab";
  const auto begin = line.find_first_not_of(' ');
  if (source && line.size() > 120 && line.compare(begin, 2, "//") == 0) return "a comment of more than 120 columns";
  return "";
}

bool is_text_of_ours(const fs::path& path, const fs::path& root) {
  static const std::set<std::string> kinds = {".h",     ".cpp", ".md", ".yaml", ".yml",  ".txt",
                                              ".cmake", ".in",  ".sh", ".py",   ".json", ""};
  const auto inside = fs::relative(path, root).generic_string();
  if (inside.rfind("tests/data/", 0) == 0 || inside.find("__pycache__") != std::string::npos) return false;
  return kinds.count(path.extension()) && inside != "LICENSE";
}

const std::set<std::string>& house() {
  static const std::set<std::string> names = {"CMakeLists.txt", "framework", "mappings",         "configs",
                                              "launch",         "tests",     "benchmarks",       "docs",
                                              "README.md",      "LICENSE",   "CMakePresets.json"};
  return names;
}

void check_file(const fs::path& path, const fs::path& root, std::vector<std::string>& found) {
  const auto name = fs::relative(path, root).generic_string();
  const auto lines = lines_of(path);
  const auto words = read(path);
  if (words.find('\0') != std::string::npos) return;
  for (std::size_t i = 0; i < lines.size(); ++i)
    if (const auto why = untidy(lines[i], is_source(path)); !why.empty())
      found.push_back(name + ":" + std::to_string(i + 1) + ": " + why);
  if (!words.empty() && words.back() != '\n') found.push_back(name + ": no newline at the end");
  if (is_source(path) && lines.size() > 500)
    found.push_back(name + ": " + std::to_string(lines.size()) + " lines; which list is hiding here?");
}

}  // namespace

Components read_components(const fs::path& file) {
  Components components;
  for (const auto& line : lines_of(file)) {
    const auto colon = line.find(':');
    const auto component = line.substr(0, colon);
    std::istringstream others(line.substr(colon + 1));
    components[component].insert(component);
    for (std::string other; others >> other;) components[component].insert(other);
  }
  return components;
}

std::vector<std::string> forbidden_includes(const Components& components, const fs::path& framework) {
  static const std::regex include(R"re(^\s*#\s*include\s*([<"])([^">]+)[">])re");
  std::vector<std::string> found;
  for (const auto& path : files_below(framework)) {
    const auto inside = fs::relative(path, framework);
    if (!is_source(path)) continue;
    const auto component = component_of(inside, components);
    const auto lines = lines_of(path);
    std::smatch match;
    for (std::size_t i = 0; i < lines.size(); ++i) {
      if (!std::regex_search(lines[i], match, include)) continue;
      const auto why = complaint_about(match[2], match[1] == "\"", component, components);
      if (!why.empty()) found.push_back(inside.generic_string() + ":" + std::to_string(i + 1) + " " + why);
    }
  }
  return found;
}

std::vector<std::string> unregistered_sources(const fs::path& framework) {
  static const std::regex defined(R"re(void (register_\w+)\([\w:]+& (\w+)\) \{\s+\2\.add)re");
  std::vector<std::string> found;
  for (const auto& path : files_below(framework)) {
    if (path.extension() != ".cpp") continue;
    const auto source = read(path);
    const auto catalog = framework / *fs::relative(path, framework).begin() / "catalog.cpp";
    for (std::sregex_iterator match(source.begin(), source.end(), defined), end; match != end; ++match)
      if (read(catalog).find("  " + (*match)[1].str() + "(") == std::string::npos)
        found.push_back(fs::relative(path, framework).generic_string() +
                        " is not registered: catalog.cpp does not call " + (*match)[1].str());
  }
  return found;
}

std::vector<std::string> writes_beside_the_log(const fs::path& root, const std::set<std::string>& result_writers) {
  static const std::regex result("std::cout|\\bprintf\\s*\\(|\\bputs\\s*\\(|\\bputchar\\s*\\("),
      other("std::cerr|std::clog|\\bfprintf\\s*\\(|\\bfputs\\s*\\(|\\bperror\\s*\\(");
  std::vector<std::string> found;
  for (const auto* folder : {"framework", "launch"})
    for (const auto& path : files_below(root / folder)) {
      if (!is_source(path)) continue;
      const auto name = fs::relative(path, root).generic_string();
      const auto lines = lines_of(path);
      for (std::size_t i = 0; i < lines.size(); ++i) {
        const auto code = lines[i].substr(0, lines[i].find("//"));
        if (std::regex_search(code, other) || (std::regex_search(code, result) && !result_writers.count(name)))
          found.push_back(name + ":" + std::to_string(i + 1) + ": writes beside the log; use a Logger (log/log.h)");
      }
    }
  return found;
}

std::vector<std::string> uses_of_std_regex(const fs::path& root) {
  std::vector<std::string> found;
  for (const auto* folder : {"framework", "launch"})
    for (const auto& path : files_below(root / folder)) {
      const auto name = fs::relative(path, root).generic_string();
      if (!is_source(path)) continue;
      const auto lines = lines_of(path);
      for (std::size_t i = 0; i < lines.size(); ++i)
        if (lines[i].rfind("#include <regex>", 0) == 0)
          found.push_back(name + ":" + std::to_string(i + 1) +
                          ": std::regex overflows the stack on long input; parse by hand, or use our Regex");
    }
  return found;
}

std::vector<std::string> texts_in_the_core(const Components& components, const fs::path& framework) {
  static const std::regex raw("R\"(\\w*)\\(");
  std::vector<std::string> found;
  for (const auto& path : files_below(framework)) {
    const auto inside = fs::relative(path, framework);
    const auto component = component_of(inside, components);
    if (!is_source(path) || component == "cli" || component.rfind("interop/", 0) == 0) continue;
    const auto source = read(path);
    for (std::sregex_iterator at(source.begin(), source.end(), raw), none; at != none; ++at) {
      const auto begin = source.begin() + at->position();
      const auto end = source.find(")" + at->str(1) + "\"", static_cast<std::size_t>(at->position()));
      if (end == std::string::npos || std::count(begin, source.begin() + static_cast<std::ptrdiff_t>(end), '\n') < 4)
        continue;
      found.push_back(inside.generic_string() + ":" + std::to_string(1 + std::count(source.begin(), begin, '\n')) +
                      ": a long text; another program's table belongs to mappings/");
    }
  }
  return found;
}

std::vector<std::string> untidy_lines(const fs::path& root) {
  std::vector<std::string> found;
  for (const auto& name : house()) {
    const auto top = root / name;
    if (fs::is_regular_file(top) && is_text_of_ours(top, root)) check_file(top, root, found);
    for (const auto& path : fs::is_directory(top) ? files_below(top) : std::vector<fs::path>{})
      if (is_text_of_ours(path, root)) check_file(path, root, found);
  }
  return found;
}

std::vector<std::string> unexpected_at_the_top(const fs::path& root) {
  static const std::regex ignored(
      "\\..*|build.*|install|output|quickstart|runs|compile_commands\\.json|CMakeUserPresets\\.json");
  std::vector<std::string> found;
  for (const auto& entry : fs::directory_iterator(root)) {
    const auto name = entry.path().filename().string();
    if (!house().count(name) && !std::regex_match(name, ignored)) found.push_back(name);
  }
  return found;
}

}  // namespace tessera::architecture
