#pragma once

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "framework/shell/reader.h"

// The inside of follow_script. Functions of Evaluator are in evaluator.cpp (commands), control.cpp (if, loops, case),
// expansion.cpp and parameter_value.cpp (words), builtins.cpp, variables.cpp and programs.cpp.

namespace tessera::shell {

enum class Truth { no, yes, unknown };
Truth operator!(Truth truth);
Truth both(Truth a, Truth b);
Truth either(Truth a, Truth b);

/// Why reading ends before the script does.
struct Stop {
  std::string words;
  Place at;
};

struct Variable {
  std::vector<std::string> items = {""};
  std::vector<std::string> keys;  ///< of `declare -A`, as many as items
  bool list = false, named = false, exported = false, unset = false;
};

/// All that a subshell gets a copy of.
struct State {
  std::map<std::string, Variable> variables;
  std::set<std::string> exports;       ///< names that are exported once they get a value
  std::vector<std::string> arguments;  ///< $1 ...
  bool arguments_known = false;        ///< `arguments` is all there is
  int shifted = 0;                     ///< arguments that are not known and were shifted away
  std::string folder;                  ///< the working directory, marked as ${PWD} where the script begins
};

/// Where the output of commands goes.
struct Output {
  std::string words;
  bool known = true;
};

enum class Flow { on, leave_loop, next_round, leave_function, leave_script };

class Evaluator {
 public:
  Evaluator(const std::string& file, const Inputs& inputs, const Choices& choices, long steps);
  Reading read(const std::string& text);

  // what arithmetic and tests ask for
  std::optional<std::string> value_of(const std::string& name);  ///< nothing when it is not set or not known
  std::string value_or_mark(const std::string& name);            ///< an unknown one as a mark
  void assign(const std::string& name, std::string value);
  bool is_file(const std::string& path, char kind);
  bool has(const std::string& name) const;
  void step(long cost = 1);
  void remark(const std::string& words);
  void assume() { assumed_ = true; }  ///< a condition took a name that nobody sets for empty

 private:
  friend class WordMaker;

  // commands
  Truth run(const Tree& tree);
  Truth run_list(const Node& node);
  Truth run_and_or(const Node& node);
  Truth run_pipeline(const Node& node);
  Truth run_simple(const Node& node);
  Truth run_words(const Node& node, std::vector<std::string> words);
  Truth run_subshell(const Tree& body);
  Truth with_redirects(const Node& node, const std::function<Truth()>& action);
  void read_input(const Redirect& redirect);
  void write_file(const std::string& name, const Output& output, bool append);
  Truth run_text(const std::string& text, const Place& at);
  Truth run_script_file(const std::string& path, std::vector<std::string> arguments, bool own_shell);
  Truth call_function(const Tree& body, std::vector<std::string> arguments);
  Truth run_program(const std::vector<std::string>& words);
  bool run_inner_shell(const std::vector<std::string>& words);
  void run_inside(const std::vector<std::string>& words, std::size_t count, const std::string& text,
                  std::vector<std::string> arguments);
  std::vector<std::pair<std::string, std::string>> exported() const;
  void learn(ParsedScript& script);
  State copy_of_state();

  // control
  Truth run_branches(const Node& node);
  Truth run_loop(const Node& node);
  Truth run_each(const Node& node);
  Truth run_counted(const Node& node);
  Truth run_choice(const Node& node);
  bool end_of_round();
  Truth run_items(const Node& node, const std::vector<std::string>& items);
  int decide(const Place& at, int site, const std::string& condition, int branches, int usual);
  bool ends_script(const Tree& tree, int depth = 0) const;

  // words
  std::vector<std::string> fields(const std::vector<Word>& words);
  std::string single(const Word& word);
  std::string pattern(const Word& word);
  std::string arithmetic(const Part& part);
  std::string substitution(const Part& part);
  std::string concat(const std::vector<Part>& parts, bool as_pattern);
  std::string scalar(const Part& part, bool in_words);
  bool is_list(const Part& part) const;
  std::vector<std::string> list_items(const Part& part);
  std::optional<std::string> raw_value(const Parameter& parameter, bool in_words);
  bool set_for_sure(const Part& part, const std::optional<std::string>& value);
  bool stands_in(const Part& part);
  std::string with_op(const Part& part, std::optional<std::string> value);
  std::string cut(const Parameter& parameter, const std::string& value);
  std::optional<std::string> special(const std::string& name);
  std::optional<std::string> argument(int number);
  std::vector<std::string> all_arguments();
  std::string subscripted(const Variable& variable, const Word& subscript, bool& found);

  // builtins
  using Words = std::vector<std::string>;
  std::optional<Truth> builtin(const Node& node, const Words& words);
  Truth declare(const Node& node, const Words& words);
  Truth set(const Words& words);
  Truth shift(const Words& words);
  Truth unset(const Words& words);
  Truth change_folder(const Words& words);
  Truth let(const Words& words);
  Truth read_line(const Words& words);
  Truth leave(const Words& words);
  Truth print(const Words& words);
  void assign_all(const Assignment& assignment);
  void assign_list(const Assignment& assignment, Variable& variable);
  void assign_item(const Assignment& assignment, Variable& variable);
  void emit(const std::string& words);
  void emit_unknown();

  std::optional<std::string> text_of_file(const std::string& path);
  std::string found_file(const std::string& path) const;  ///< a file that is there; empty when none is

  Reading reading_;
  const Choices& choices_;
  State state_;
  std::map<std::string, Tree> functions_;
  std::vector<std::map<std::string, std::optional<Variable>>> locals_;
  std::vector<std::string> prefix_;  ///< words before the programs that an inner shell starts
  std::string script_folder_;
  Place at_;
  Flow flow_ = Flow::on;
  bool assumed_ = false;
  int levels_ = 0;  ///< loops to leave
  Output* output_ = nullptr;
  std::optional<std::string> input_;
  std::map<Decision, std::size_t> decided_;  ///< which of the reading's
  std::set<std::string> assigned_;           ///< names that the scripts assign somewhere
  int depth_ = 0, substitutions_ = 0;
  long steps_left_, produced_ = 0;
};

/// An integer expression of Bash. Nothing when something in it is not known; also, with a remark, when it is none.
std::optional<long long> arithmetic_value(const std::string& expression, Evaluator& evaluator);
/// The expression with the values of its names in their place.
std::string arithmetic_words(const std::string& expression, Evaluator& evaluator);

/// Whether all of `words` fits a pattern with * ? [..], in which \x is x itself.
bool fits(const std::string& words, const std::string& pattern);
/// Length of what a pattern fits at the beginning (or the end) of `words`, the shortest or the longest; npos if none.
std::size_t fitting_prefix(const std::string& words, const std::string& pattern, bool longest);
std::size_t fitting_suffix(const std::string& words, const std::string& pattern, bool longest);

/// One operand or operator of [ ] and [[ ]].
struct Operand {
  std::string words;
  std::string pattern;  ///< of [[ ]]: the words as a pattern
  bool quoted = false;  ///< is no operator
};
Truth test(const std::vector<Operand>& operands, bool patterns, Evaluator& evaluator);

/// A word as many words where it has {a,b} or {1..8}.
std::vector<Word> expand_braces(const Word& word);

/// What a program prints that is known without running it (dirname, seq, tr, ...); nothing for all others.
std::optional<std::string> output_of(const std::vector<std::string>& words, const std::optional<std::string>& input);
/// What echo and printf print.
std::string printed(const std::vector<std::string>& words);

/// "a/./b/../c" -> "a/c"
std::string tidy_path(const std::string& path);

}  // namespace tessera::shell
