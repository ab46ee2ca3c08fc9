#include <algorithm>
#include <cctype>

#include "framework/base/error.h"
#include "framework/interop/flags/launch.h"

// Conditions that nobody can know: what they decide, and what would decide them.

namespace tessera::flags {
namespace {

/// "a, b and c"; of many the first and how many more there are.
std::string listed(const std::vector<std::string>& words) {
  constexpr std::size_t most = 5;
  const auto shown = words.size() <= most ? words.size() : most - 1;
  std::string all;
  for (std::size_t i = 0; i < shown; ++i) all += (i == 0 ? "" : i + 1 == words.size() ? " and " : ", ") + words[i];
  return shown == words.size() ? all : text(all, " and ", words.size() - shown, " more");
}

bool is_argument(const std::string& unknown) { return answer_to(unknown).rfind("--arg", 0) == 0; }

}  // namespace

std::string answer_to(const std::string& unknown) {
  if (unknown == "$@" || unknown == "$*" || unknown == "$#") return "--arg 1=VALUE";
  if (unknown.size() < 2 || unknown[0] != '$') return "";
  const bool braces = unknown[1] == '{';
  if (braces && unknown.back() != '}') return "";
  const auto name = braces ? unknown.substr(2, unknown.size() - 3) : unknown.substr(1);
  const auto all = [&name](auto is) { return !name.empty() && std::all_of(name.begin(), name.end(), is); };
  if (all([](unsigned char c) { return std::isdigit(c) != 0; })) return text("--arg ", name, "=VALUE");
  if (all([](unsigned char c) { return std::isalnum(c) != 0 || c == '_'; })) return text("--env ", name, "=VALUE");
  return "";
}

std::string text_of(const Undecided& undecided) {
  auto what = undecided.flags;
  if (undecided.program) what.emplace_back("the program");
  if (what.empty()) what = undecided.launcher_options;
  const auto decides = undecided.followed ? " decides " + listed(what) : " may decide flags";
  if (undecided.needs.empty()) return text("'", undecided.condition, "'", decides, ", but is not known");
  return text("'", undecided.condition, "'", decides, ", but ", listed(undecided.needs),
              undecided.needs.size() == 1 ? " is" : " are", " not known");
}

std::string remedy_for(const Undecided& undecided) {
  std::vector<std::string> answers;
  for (const auto& need : undecided.needs) {
    const auto answer = answer_to(need);
    if (!answer.empty() && std::find(answers.begin(), answers.end(), answer) == answers.end())
      answers.push_back(answer);
  }
  if (answers.empty()) return "in a copy of the script write true or false in its place";
  const auto argument = std::find_if(undecided.needs.begin(), undecided.needs.end(), is_argument);
  if (argument == undecided.needs.end()) return "give " + listed(answers);
  auto without = answer_to(*argument);
  without.resize(without.size() - std::string("VALUE").size());
  return text("give ", listed(answers), "; ", without, " if the script is called without it");
}

}  // namespace tessera::flags
