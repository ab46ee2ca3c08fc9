#include "framework/reporting/run_notes.h"

#include <algorithm>
#include <set>
#include <sstream>

namespace tessera::reporting {
namespace {

const std::string mark = "# note: ";

/// The note as one comment line.
std::string comment(std::string note) {
  std::replace(note.begin(), note.end(), '\n', ' ');
  return mark + note;
}

}  // namespace

std::string with_notes(const std::string& resolved_recipe, const std::vector<std::string>& notes) {
  auto all = resolved_recipe;
  if (!notes.empty() && !all.empty() && all.back() != '\n') all += '\n';
  for (const auto& note : notes) all += comment(note) + "\n";
  return all;
}

std::vector<std::string> new_notes(const std::vector<std::string>& notes, const std::string& resolved_yaml) {
  std::set<std::string> known;
  std::istringstream lines(resolved_yaml);
  for (std::string line; std::getline(lines, line);)
    if (line.rfind(mark, 0) == 0) known.insert(line);
  std::vector<std::string> out;
  for (const auto& note : notes)
    if (known.insert(comment(note)).second) out.push_back(note);
  return out;
}

}  // namespace tessera::reporting
