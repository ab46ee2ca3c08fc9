#include "framework/convert/launch.h"

#include <algorithm>
#include <deque>
#include <set>

#include "framework/base/error.h"
#include "framework/convert/launcher_table.h"
#include "framework/convert/model_args.h"
#include "framework/shell/reader.h"

namespace tessera {
namespace {

constexpr long steps_of_one_way = 200'000, steps_of_other_ways = 100'000;  // tenths of a second; scripts need thousands
constexpr std::size_t most_ways = 400;

bool ends_with(const std::string& words, const std::string& end) {
  return words.size() >= end.size() && words.compare(words.size() - end.size(), end.size(), end) == 0;
}

/// Follows a script through its branches and gathers what it launches.
class ScriptReader {
 public:
  ScriptReader(const std::string& file, const ScriptInputs& inputs, const Mappings& mappings, Report& report)
      : file_(file), inputs_{inputs.arguments, inputs.environment}, table_(mappings), report_(report) {}

  LaunchReading read() {
    text_ = shell::read_script_text(file_);
    const auto usual = follow({});
    tell(usual);
    reading_.files = usual.written;
    reading_.launches = launches(usual, report_);
    other_ways(usual);
    if (reading_.launches.empty()) say_why_none(usual);
    list_unknowns(reading_);
    return std::move(reading_);
  }

 private:
  struct Way {
    shell::Choices choices;
    std::string condition;
  };

  shell::Reading follow(const shell::Choices& choices) {
    const bool usual = choices.empty();
    auto out = shell::follow_text(text_, file_, inputs_, choices, usual ? steps_of_one_way : steps_left_);
    if (!usual) steps_left_ -= out.steps;
    return out;
  }

  Origin origin(const shell::Reading& from, const shell::Place& place) const {
    return {from.files.at(static_cast<std::size_t>(place.file)), place.line, "", 0};
  }

  void tell(const shell::Reading& from) {
    for (const auto& remark : from.remarks) report_.note(origin(from, remark.at), remark.words);
  }

  std::vector<Launch> launches(const shell::Reading& from, Report& report) {
    std::vector<Launch> out, perhaps;
    for (const auto& run : from.runs) {
      auto launch = launch_of(run, from.files, table_, report);
      if (launch.program.empty()) continue;
      if (table_.trains(launch.program))
        out.push_back(std::move(launch));
      else if (launch.program[0] == '$' && launch.program.find('/') == std::string::npos && launch.flags.size() > 1)
        perhaps.push_back(std::move(launch));  // nobody knows what it is
      else
        others_.insert(launch.program);
    }
    return out.empty() ? perhaps : out;
  }

  /// Each condition once the other way round, and conditions that only come up there.
  void other_ways(const shell::Reading& usual) {
    std::deque<Way> ways;
    std::set<shell::Decision> seen;
    const auto add = [&](const shell::Reading& reading, const Way& from) {
      for (const auto& decision : reading.decisions) {
        if (!seen.insert(decision).second) continue;
        for (int branch = 0; branch < decision.branches; ++branch)
          if (branch != decision.taken) {
            auto way = from;
            way.choices[decision] = branch;
            way.condition = text(decision.condition, ", line ", decision.at.line);
            ways.push_back(std::move(way));
          }
      }
    };
    add(usual, {});
    for (std::size_t count = 0; !ways.empty() && count < most_ways && steps_left_ > 0; ++count) {
      const auto way = std::move(ways.front());
      ways.pop_front();
      const auto reading = follow(way.choices);
      add(reading, way);
      merge(reading, way);
    }
  }

  void merge(const shell::Reading& reading, const Way& way) {
    Report unheard;
    auto found = launches(reading, unheard);
    if (reading_.launches.empty() && !found.empty()) {
      reading_.launches = std::move(found);
      tell(reading);
      report_.note({file_, 0, "", 0}, text("read as if this fell otherwise than it looks: ", way.condition));
      return;
    }
    for (const auto& launch : found) add_elsewhere(launch, way.condition);
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
    if (!usual.error.empty()) {
      report_.problem(origin(usual, usual.error_at), "", usual.error);
      return;
    }
    std::string what = "starts no training";
    if (!others_.empty()) what += text("; it starts ", *others_.begin());
    report_.problem({file_, 0, "", 0}, "", what, "give the script that calls torchrun, deepspeed, python, ...");
  }

  const std::string file_;
  const shell::Inputs inputs_;
  const LauncherTable table_;
  Report& report_;
  std::string text_;
  long steps_left_ = steps_of_other_ways;
  LaunchReading reading_;
  std::set<std::string> others_;
};

}  // namespace

LaunchReading read_launches(const std::string& file, const ScriptInputs& inputs, const Mappings& mappings,
                            Report& report) {
  try {
    if (ends_with(file, ".yaml") || ends_with(file, ".yml"))
      return read_model_args(shell::read_script_text(file), file, report);
    return ScriptReader(file, inputs, mappings, report).read();
  } catch (const ConfigError& error) {
    const std::string story = error.what(), place = file + ": ";  // which the report says itself
    report.problem({file, 0, "", 0}, "", story.rfind(place, 0) == 0 ? story.substr(place.size()) : story);
    return {};
  }
}

}  // namespace tessera
