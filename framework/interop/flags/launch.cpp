#include "framework/interop/flags/launch.h"

#include <algorithm>
#include <cctype>
#include <deque>
#include <filesystem>
#include <memory>
#include <set>
#include <utility>

#include "framework/base/error.h"
#include "framework/interop/flags/launcher_table.h"
#include "framework/interop/flags/model_args.h"
#include "framework/interop/shell/reader.h"

namespace tessera::flags {
namespace {

// Tenths of a second; scripts need thousands.
constexpr long steps_of_one_way = 200'000, steps_of_other_ways = 100'000, steps_of_open_ways = 400'000;
constexpr std::size_t most_ways = 400;

bool name_ends_with(const std::string& words, const std::string& end) {
  return words.size() >= end.size() && words.compare(words.size() - end.size(), end.size(), end) == 0;
}

/// The words of a script that can be names of variables; HOME for a ~.
std::set<std::string> words_of(const std::string& script) {
  std::set<std::string> words;
  if (script.find('~') != std::string::npos) words.insert("HOME");
  std::string word;
  for (const char c : script + " ") {
    const bool of_name = std::isalnum(static_cast<unsigned char>(c)) || c == '_';
    if (of_name) word += c;
    if (!of_name && !word.empty()) words.insert(std::exchange(word, ""));
  }
  return words;
}

/// Follows a script through its branches and gathers what it launches.
class ScriptReader {
 public:
  ScriptReader(const std::string& file, const ScriptInputs& inputs, const options::Mappings& mappings,
               options::Report& report)
      : file_(file), inputs_{inputs.arguments, inputs.environment}, table_(mappings), report_(report) {}

  LaunchReading read() {
    text_ = shell::read_script_text(file_);
    ConditionWay way;
    auto first = follow(way.choices, steps_of_one_way);
    tell(first);
    reading_.launches = launches(first, report_);
    reading_.files = first.written;
    reading_.read = first.files;
    if (reading_.launches.empty() && first.error.empty()) find_launch(first, way);
    if (reading_.launches.empty())
      say_why_none(first);
    else
      explore(first, way);
    if (!reading_.launches.empty() && !first.error.empty())
      report_.note(origin(first, first.error_at), text("the script is read up to here: ", first.error));
    leave_out_open_options();
    list_unknowns(reading_);
    tell_unread_environment();
    return std::move(reading_);
  }

 private:
  /// Conditions that fall otherwise than they do by themselves.
  struct ConditionWay {
    shell::Choices choices;
    shell::Decision last;                  ///< of the choices
    options::Origin at;                    ///< where it is written
    std::shared_ptr<const Launch> before;  ///< what is started when it falls the other way; null: nothing
    bool open = true;                      ///< for all that is known this may be what happens
    std::string condition() const { return text(last.condition, ", line ", last.at.line); }
  };
  using Ways = std::deque<ConditionWay>;

  shell::Reading follow(const shell::Choices& choices, long steps) {
    return shell::follow_text(text_, file_, inputs_, choices, steps);
  }

  options::Origin origin(const shell::Reading& from, const shell::ScriptPosition& place) const {
    return {from.files.at(static_cast<std::size_t>(place.file)), place.line, "", 0};
  }

  void tell(const shell::Reading& from) {
    for (const auto& remark : from.remarks) report_.note(origin(from, remark.at), remark.words);
    std::string variables, arguments;
    for (const auto& one : from.assumed) {
      const bool argument = one.name.find_first_not_of("0123456789") == std::string::npos;
      auto& all = argument ? arguments : variables;
      all += text(all.empty() ? "" : ", ", argument ? "$" : "", one.name,
                  one.instead.empty() ? " is not set" : " is " + one.instead, " (line ", one.at.line, ")");
    }
    if (!variables.empty())
      report_.note({file_, 0, "", 0}, text("these environment variables are not known; read as if ", variables,
                                           "; --env NAME=VALUE gives a value"));
    if (!arguments.empty())
      report_.note({file_, 0, "", 0},
                   text("the arguments are not known; read as if ", arguments, "; --arg N=VALUE gives a value"));
  }

  /// A variable that --env gives and that no file of the script names is most often a mistyped one.
  void tell_unread_environment() {
    std::set<std::string> named = words_of(text_);
    for (const auto& file : reading_.read)
      if (file != file_ && std::filesystem::exists(file)) named.merge(words_of(shell::read_script_text(file)));
    for (const auto& [name, value] : inputs_.environment) {
      if (named.count(name)) continue;
      const auto meant = options::did_you_mean(name, {named.begin(), named.end()});
      report_.note({file_, 0, "", 0},
                   text("--env ", name, ": the script does not name this variable; it is only passed ",
                        "to what is started", meant.empty() ? "" : "; ", meant));
    }
  }

  std::vector<Launch> launches(const shell::Reading& from, options::Report& report) {
    std::vector<Launch> out, perhaps;
    for (const auto& run : from.runs) {
      auto launch = launch_of(run, from.files, table_, report);
      if (launch.program.empty()) continue;
      if (table_.trains(launch.program))
        out.push_back(std::move(launch));
      else if (launch.program[0] == '$' && launch.program.find('/') == std::string::npos && launch.flags.size() > 1)
        perhaps.push_back(std::move(launch));  // it is unknown whether this is a training
      else
        others_.insert(launch.program);
    }
    return out.empty() ? perhaps : out;
  }

  /// The ways on which one more condition of `reading` falls otherwise than on `from`.
  template <class Add>
  void each_turn(const shell::Reading& reading, const ConditionWay& from, const std::shared_ptr<const Launch>& launch,
                 std::set<shell::Decision>& seen, const Add& add) const {
    for (const auto& decision : reading.decisions) {
      if (!seen.insert(decision).second) continue;
      for (int branch = 0; branch < decision.branches; ++branch) {
        if (branch == decision.taken) continue;
        const auto& possible = decision.possible;
        auto way = from;
        way.choices[decision] = branch;
        way.last = decision;
        way.at = origin(reading, decision.at);
        way.before = launch;
        way.open = from.open && decision.open && std::find(possible.begin(), possible.end(), branch) != possible.end();
        add(std::move(way));
      }
    }
  }

  /// A script that starts nothing as it stands: the first way on which it does becomes what is read. When others, which
  /// are as likely, start something else, what they turn on is undecided.
  void find_launch(shell::Reading& first, ConditionWay& root) {
    Ways ways;
    std::set<shell::Decision> seen;
    const auto add = [&ways](ConditionWay way) { ways.push_back(std::move(way)); };
    each_turn(first, root, nullptr, seen, add);
    long steps = steps_of_other_ways;
    for (std::size_t count = 0; !ways.empty() && count < most_ways && steps > 0; ++count) {
      const auto way = std::move(ways.front());
      ways.pop_front();
      auto reading = follow(way.choices, steps);
      steps -= reading.steps;
      options::Report unheard;
      auto found = launches(reading, unheard);
      if (reading_.launches.empty()) {
        each_turn(reading, way, nullptr, seen, add);
        if (found.empty()) continue;
        reading_.launches = std::move(found);
        tell(reading);
        report_.note({file_, 0, "", 0},
                     text("a condition of the script could not be decided; read as if: ", way.condition()));
        root = way;
        root.open = true;
        first = std::move(reading);
        if (!way.open) return;
      } else if (way.open && !found.empty() && !way.choices.count(root.last)) {
        judge(root, reading_.launches.front(), found.front());
        judge(way, reading_.launches.front(), found.front());
      }
    }
  }

  /// Each condition once the other way round, and conditions that only come up there: first those that are open, to see
  /// whether the launch depends on them, then all others, for flags that are given elsewhere.
  void explore(const shell::Reading& first, const ConditionWay& root) {
    Ways open, closed;
    std::set<shell::Decision> seen;
    for (const auto& [decision, branch] : root.choices) seen.insert(decision);
    const auto add = [&](ConditionWay way) { (way.open ? open : closed).push_back(std::move(way)); };
    const auto launch_of = [](const std::vector<Launch>& all) {
      return all.empty() ? nullptr : std::make_shared<const Launch>(all.front());
    };
    each_turn(first, root, launch_of(reading_.launches), seen, add);
    const auto work_off = [&](Ways& ways, long steps) {
      for (std::size_t count = 0; !ways.empty() && count < most_ways && steps > 0; ++count) {
        const auto way = std::move(ways.front());
        ways.pop_front();
        const auto reading = follow(way.choices, std::min(steps, steps_of_one_way));
        const bool cut = reading.steps > std::min(steps, steps_of_one_way);
        steps -= reading.steps;
        options::Report unheard;
        const auto found = launches(reading, unheard);
        if (way.open && way.before && !found.empty()) judge(way, *way.before, found.front());
        if (way.open && found.empty() && cut) undecided_of(way).followed = false;
        each_turn(reading, way, launch_of(found), seen, add);
        for (const auto& launch : found) add_elsewhere(launch, way.condition());
      }
    };
    work_off(open, steps_of_open_ways);
    for (const auto& way : open)
      if (!undecided_.count(way.last)) undecided_of(way).followed = false;
    work_off(closed, steps_of_other_ways);
  }

  Undecided& undecided_of(const ConditionWay& way) {
    const auto [known, first] = undecided_.try_emplace(way.last, reading_.undecided.size());
    if (first) {
      Undecided one;
      one.condition = way.last.condition;
      one.at = way.at;
      one.needs = way.last.needs;
      reading_.undecided.push_back(std::move(one));
    }
    return reading_.undecided[known->second];
  }

  /// Whether two launches differ, and so what tells them apart matters.
  void judge(const ConditionWay& way, const Launch& before, const Launch& now) {
    const auto values_of = [](const std::vector<GivenFlag>& flags) {
      std::map<std::string, const GivenFlag*> last;  // the last counts
      for (const auto& flag : flags) last[flag.flag] = &flag;
      return last;
    };
    const auto put = [](std::vector<std::string>& all, const std::string& name) {
      if (std::find(all.begin(), all.end(), name) == all.end()) all.push_back(name);
    };
    const auto compare = [&](const std::vector<GivenFlag>& a, const std::vector<GivenFlag>& b, const auto& differs) {
      const auto old = values_of(a), fresh = values_of(b);
      for (const auto& [name, flag] : old)
        if (const auto same = fresh.find(name); same == fresh.end() || same->second->values != flag->values)
          differs(name, same == fresh.end() ? nullptr : same->second);
      for (const auto& [name, flag] : fresh)
        if (!old.count(name)) differs(name, flag);
    };
    compare(before.flags, now.flags, [&](const std::string& name, const GivenFlag* otherwise) {
      auto& one = undecided_of(way);
      put(one.flags, name);
      if (otherwise != nullptr) one.otherwise.push_back(*otherwise);
    });
    compare(before.options, now.options,
            [&](const std::string& name, const GivenFlag*) { put(undecided_of(way).launcher_options, name); });
    if (before.program != now.program) undecided_of(way).program = true;
  }

  /// Where to run does not change what is run: options of the launcher that a condition decides are left out and told.
  void leave_out_open_options() {
    for (const auto& one : reading_.undecided) {
      if (reading_.launches.empty() || one.launcher_options.empty()) continue;
      std::erase_if(reading_.launches.front().options, [&one](const GivenFlag& option) {
        const auto& names = one.launcher_options;
        return std::find(names.begin(), names.end(), option.flag) != names.end();
      });
      if (!one.decides_run()) report_.note(one.at, text(text_of(one), "; ", remedy_for(one)));
    }
  }

  void add_elsewhere(const Launch& other, const std::string& condition) {
    const auto same_line = [&](const Launch& launch) {
      return launch.at.line == other.at.line && launch.at.source == other.at.source;
    };
    auto to = std::find_if(reading_.launches.begin(), reading_.launches.end(), same_line);
    if (to == reading_.launches.end()) to = reading_.launches.begin();
    for (const auto& flag : other.flags) {
      const auto given = [&flag](const GivenFlag& one) { return one.flag == flag.flag; };
      if (flag.flag.find('$') != std::string::npos) continue;  // --${PRECISION}
      if (std::any_of(to->flags.begin(), to->flags.end(), given)) continue;
      if (std::none_of(to->elsewhere.begin(), to->elsewhere.end(), [&](const auto& one) { return given(one.given); }))
        to->elsewhere.push_back({flag, condition});
    }
  }

  void say_why_none(const shell::Reading& usual) {
    report_.incomplete();
    if (!usual.error.empty()) {
      report_.problem(origin(usual, usual.error_at), "", usual.error);
      return;
    }
    std::string what = "starts no training";
    for (const auto& run : usual.runs)
      if (const auto name = shell::plain(run.words[0]); name_ends_with(name, ".sh"))
        what += text("; line ", run.at.line, " starts ", name, ", which does not exist");
    if (!others_.empty()) what += text("; it starts ", *others_.begin());
    report_.problem({file_, 0, "", 0}, "", what, "give the script that calls torchrun, deepspeed, python, ...");
  }

  const std::string file_;
  const shell::Inputs inputs_;
  const LauncherTable table_;
  options::Report& report_;
  std::string text_;
  LaunchReading reading_;
  std::map<shell::Decision, std::size_t> undecided_;  // which of the reading's
  std::set<std::string> others_;
};

}  // namespace

LaunchReading read_launches(const std::string& file, const ScriptInputs& inputs, const options::Mappings& mappings,
                            options::Report& report) {
  try {
    if (name_ends_with(file, ".yaml") || name_ends_with(file, ".yml"))
      return read_model_args(shell::read_script_text(file), file, report);
    return ScriptReader(file, inputs, mappings, report).read();
  } catch (const ConfigError& error) {
    const std::string message = error.what(), place = file + ": ";  // which the report says itself
    report.problem({file, 0, "", 0}, "", message.rfind(place, 0) == 0 ? message.substr(place.size()) : message);
    report.incomplete();
    return {};
  }
}

}  // namespace tessera::flags
