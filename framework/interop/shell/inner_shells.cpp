#include <algorithm>
#include <cctype>
#include <set>

#include "framework/base/error.h"
#include "framework/interop/shell/program_options.h"
#include "framework/interop/shell/script_evaluator.h"

// Programs that a script starts, other scripts, and shells inside of commands: bash -c, srun bash -c, sbatch <<EOF.

namespace tessera::shell {
namespace {

std::string name_of(const std::string& word) {
  const auto bare = plain(word);
  const auto slash = bare.rfind('/');
  return slash == std::string::npos ? bare : bare.substr(slash + 1);
}

bool is_shell(const std::string& word) {
  const auto name = name_of(word);
  return name == "bash" || name == "sh" || name == "zsh" || name == "dash";
}

/// A word that is a whole command: srun "python train.py --lr 1".
bool is_command(const std::string& word) {
  const auto at = word.find(".py");
  return at != std::string::npos && word.find(' ') < word.size() && word.find("python") < word.size();
}

/// Whether the text begins as a script of a shell does.
bool is_shell_script(const std::string& text) {
  if (text.compare(0, 2, "#!") != 0) return false;
  const auto line = text.substr(0, text.find('\n'));
  return line.find("sh") != std::string::npos && line.find("fish") == std::string::npos;
}

/// --save, -x: no program has such a name.
bool is_flag(const std::string& word) {
  return word.size() > 1 && word[0] == '-' &&
         (word[1] == '-' || std::isalpha(static_cast<unsigned char>(word[1])) != 0);
}

/// Programs that start the program which their last words name.
bool may_start_others(const std::string& word) {
  static const std::set<std::string> known = {
      "srun",  "mpirun",  "mpiexec", "env",    "nohup", "timeout",  "numactl",    "taskset",     "sudo",
      "nice",  "time",    "setsid",  "stdbuf", "ssh",   "docker",   "podman",     "singularity", "apptainer",
      "xargs", "orterun", "sbatch",  "salloc", "pdsh",  "torchrun", "accelerate", "deepspeed"};
  return known.count(name_of(word)) != 0;
}

}  // namespace

void ScriptEvaluator::forget_inner_state() {
  std::erase_if(state_.variables, [](const auto& entry) { return !entry.second.exported; });
  state_.functions.clear();
  state_.calls.clear();
  state_.options = {"braceexpand"};
  state_.at_exit.clear();
  state_.shifted = 0;
  state_.name.reset();
}

Truth ScriptEvaluator::run_script_file(const std::string& path, std::vector<std::string> arguments, bool own_shell) {
  const auto text = text_of_file(without_places(path));
  if (!text) {
    const bool writes = files_.count(file_key(path)) != 0;
    remark(plain(path) + " is sourced here, but " +
           (writes ? "what the script writes to it is not known" : "does not exist: what it sets is not known"));
    doubt_outcome("source " + path);
    return Truth::unknown;
  }
  const ScriptPosition at = at_;
  const auto name = files_.count(file_key(path)) != 0 ? "" : found_file(path);
  reading_.files.push_back(name.empty() ? plain(path) : name);
  const auto number = static_cast<int>(reading_.files.size()) - 1;
  step(static_cast<long>(text->size() / 256));
  auto script = parse_script(*text, {number, 1}, false);
  learn(script);
  reading_.remarks.insert(reading_.remarks.end(), script.remarks.begin(), script.remarks.end());
  const auto before = copy_of_state();
  if (own_shell) forget_inner_state();
  if (own_shell || !arguments.empty()) {
    state_.arguments = std::move(arguments);
    state_.arguments_known = true;
  }
  const auto out = run(script.tree);
  if (flow_ == Flow::on && !script.error.empty()) throw Stop{script.error, script.error_at};
  at_ = at;
  if (own_shell) {
    run_at_exit();
    at_ = at;
    state_ = before;
    flow_ = Flow::on;
  } else {
    state_.arguments = before.arguments;
    state_.arguments_known = before.arguments_known;
    if (flow_ == Flow::leave_function) flow_ = Flow::on;
  }
  return out;
}

std::vector<std::pair<std::string, std::string>> ScriptEvaluator::exported() const {
  std::vector<std::pair<std::string, std::string>> out;
  for (const auto& [name, variable] : state_.variables)
    if (variable.exported && variable.is_set()) out.emplace_back(name, *variable.value());
  return out;
}

void ScriptEvaluator::run_inside(const std::vector<std::string>& words, std::size_t count, const std::string& text,
                                 std::vector<std::string> arguments, const std::string& name) {
  const auto before = copy_of_state();
  const auto prefix = prefix_;
  prefix_.insert(prefix_.end(), words.begin(), words.begin() + static_cast<std::ptrdiff_t>(count));
  state_.arguments = std::move(arguments);
  state_.arguments_known = true;
  forget_inner_state();
  if (!name.empty()) state_.name = name;
  run_text(text, at_);
  flow_ = Flow::on;
  state_ = before;
  prefix_ = prefix;
}

bool ScriptEvaluator::run_inner_shell(const std::vector<std::string>& words) {
  auto shell = std::find_if(words.begin(), words.end(), is_shell);
  const bool batch = name_of(words[0]) == "sbatch";
  if (batch) shell = words.begin();
  const auto count = static_cast<std::size_t>(shell - words.begin());
  if (shell == words.end()) {
    const auto command = words.size() < 2 ? words.end() : std::find_if(words.begin() + 1, words.end(), is_command);
    const auto name = name_of(words[0]);
    if (command == words.end() || (name != "srun" && name != "ssh" && name != "pdsh" && name != "mpirun")) return false;
    run_inside(words, static_cast<std::size_t>(command - words.begin()), *command, {});
    return true;
  }
  if (count > 0 && name_of(words[0]).find("python") != std::string::npos) return false;
  auto next = shell + 1;
  for (; next != words.end(); ++next) {
    const auto word = without_places(*next);
    if (word.empty() || word[0] != '-') break;
    if (!batch && word[1] != '-' && word.back() == 'c' && next + 1 != words.end()) {
      auto arguments = std::vector<std::string>(std::min(next + 3, words.end()), words.end());
      run_inside(words, count, *(next + 1), std::move(arguments), next + 2 < words.end() ? *(next + 2) : *shell);
      return true;
    }
  }
  if (next == words.end()) {
    if (!input_) return false;
    run_inside(words, count, *input_, {});
    return true;
  }
  if (!text_of_file(*next)) return false;
  const auto prefix = prefix_;
  prefix_.insert(prefix_.end(), words.begin(), shell);
  run_script_file(*next, {next + 1, words.end()}, true);
  prefix_ = prefix;
  return true;
}

bool ScriptEvaluator::run_other_script(const std::vector<std::string>& words) {
  const auto ends = [](const std::string& word, std::string_view end) {
    return word.size() > end.size() && word.compare(word.size() - end.size(), end.size(), end) == 0;
  };
  for (auto word = words.begin(); word != words.end(); ++word) {
    const auto name = without_places(*word);
    const bool first = word == words.begin();
    if (ends(name, ".py") || (!first && !may_start_others(words[0]))) return false;
    if (name.empty() || name[0] == '-' || (!ends(name, ".sh") && !(first && name.find('/') != std::string::npos)))
      continue;
    const auto text = text_of_file(name);
    if (!text && ends(name, ".sh")) {
      const bool writes = files_.count(file_key(name)) != 0;
      remark(plain(name) + " is started here, but " +
             (writes ? "what the script writes to it is not known" : "does not exist: what it starts is not known"));
      return false;
    }
    if (!text || !(ends(name, ".sh") || is_shell_script(*text))) continue;
    const auto prefix = prefix_;
    prefix_.insert(prefix_.end(), words.begin(), word);
    run_script_file(name, {word + 1, words.end()}, true);
    prefix_ = prefix;
    return true;
  }
  return false;
}

void ScriptEvaluator::doubt_program(const std::vector<std::string>& words) {
  std::string all;
  for (const auto& word : words) all += (all.empty() ? "" : " ") + word;
  const auto given = all + input_.value_or("");
  if (is_known_program(words[0]) && has_unknown(given)) return doubt(given);
  if (substitutions_ > 0) return;  // the substitution as a whole is what is not known
  constexpr std::size_t longest = 60;
  all = plain(all.substr(0, all.find('\n')));
  doubt_outcome(all.size() > longest ? all.substr(0, longest) + "..." : all);
}

std::optional<std::string> ScriptEvaluator::tidied_paths(const std::vector<std::string>& words) const {
  const auto options = program_options(words, {"femnsqLP",
                                               "",
                                               {{"canonicalize", 'f'},
                                                {"canonicalize-existing", 'e'},
                                                {"canonicalize-missing", 'm'},
                                                {"no-newline", 'n'},
                                                {"no-symlinks", 's'},
                                                {"strip", 's'},
                                                {"quiet", 'q'}}});
  if (!options || options->operands.empty()) return std::nullopt;
  const bool follows = options->has('f') || options->has('e') || options->has('m');
  if (words[0] == "readlink" && !follows) return std::nullopt;  // prints where a link points
  std::string out;
  for (const auto& path : options->operands) {
    const bool whole = !path.empty() && (path[0] == '/' || path[0] == unknown_begin);
    out += (whole ? tidy_path(path) : tidy_path(state_.folder + "/" + path)) + "\n";
  }
  return out;
}

Truth ScriptEvaluator::run_program(const std::vector<std::string>& words) {
  auto bare = words;
  for (auto& word : bare) word = without_places(word);
  if (is_flag(bare[0]))
    remark(plain(bare[0]) + " begins a command here; is a backslash missing at the end of the line before?");
  if (name_of(bare[0]) == "xargs")
    if (const auto out = run_xargs(words)) return *out;
  std::optional<std::string> output;
  if (bare[0] == "cat" && bare.size() > 1)
    output = joined_files(bare);
  else if (bare[0] == "readlink" || bare[0] == "realpath")
    output = tidied_paths(bare);
  else
    output = output_of(bare, input_);
  if (bare[0] == "tee") write_tee(bare);
  if (name_of(bare[0]) == "rm" || name_of(bare[0]) == "unlink") remove_files(bare);
  if (output) {
    emit(*output);
    return Truth::yes;
  }
  emit_unknown();
  doubt_program(bare);
  if (run_inner_shell(words) || run_other_script(words) || substitutions_ > 0) return Truth::unknown;
  StartedProgram run;
  run.words = prefix_;
  run.words.insert(run.words.end(), words.begin(), words.end());
  run.at = at_;
  const auto trains = [](const std::string& word) {
    return word.find(".py") != std::string::npos || without_places(word) == "-m";
  };
  if (std::any_of(run.words.begin(), run.words.end(), trains)) run.environment = exported();
  reading_.runs.push_back(std::move(run));
  step(static_cast<long>(words.size() / 8));
  return Truth::unknown;
}

}  // namespace tessera::shell
