#pragma once

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "framework/interop/shell/reader.h"

// Implementation of follow_script. Functions of ScriptEvaluator are in script_evaluator.cpp (commands), control.cpp
// (if, loops, case), expansion.cpp and parameter_value.cpp (words), builtins.cpp, variables.cpp and programs.cpp.

namespace tessera::shell {

/// The result of a condition. The last three are unknown; the likely ones are the result if variables without a known
/// value were unset.
enum class Truth { no, yes, unknown, likely_no, likely_yes };
Truth operator!(Truth truth);
Truth both(Truth a, Truth b);
Truth either(Truth a, Truth b);
inline bool is_open(Truth truth) { return truth != Truth::no && truth != Truth::yes; }
/// Whether a result is treated as true: unknown results are, except likely_no.
inline bool counts_as_met(Truth truth) { return truth != Truth::no && truth != Truth::likely_no; }

/// Thrown to end the evaluation before the end of the script.
struct Stop {
  std::string words;
  ScriptPosition at;
};

struct Variable {
  std::vector<std::string> items = {""};
  std::vector<std::string> keys;  ///< for `declare -A`: one for each item
  bool list = false, named = false, exported = false, unset = false;
};

/// The state of which a subshell gets a copy.
struct State {
  std::map<std::string, Variable> variables;
  std::set<std::string> exports;       ///< names that are exported as soon as they get a value
  std::vector<std::string> arguments;  ///< $1 ...
  bool arguments_known = false;        ///< there are no further arguments
  int shifted = 0;                     ///< number of unknown arguments removed by shift
  std::string folder;                  ///< the working directory; the initial one is the unknown ${PWD}
};

/// Collects the output of commands.
struct Output {
  std::string words;
  bool known = true;
};

enum class Flow { on, leave_loop, next_round, leave_function, leave_script };

class ScriptEvaluator {
 public:
  ScriptEvaluator(const std::string& file, const Inputs& inputs, const Choices& choices, long steps);
  Reading read(const std::string& text);

  // used by arithmetic and tests
  std::optional<std::string> value_of(const std::string& name);  ///< nothing if it is unset or unknown
  std::string value_or_mark(const std::string& name);            ///< an unknown value as a mark
  void assign(const std::string& name, std::string value);
  bool is_file(const std::string& path, char kind);
  bool has(const std::string& name) const;
  void step(long cost = 1);
  void remark(const std::string& words);
  void assume(const std::string& name) { assumed_.insert(name); }  ///< a condition assumed it to be unset
  /// Notes that a condition is unknown because of the unknown values in `words`.
  void doubt(const std::string& words);
  /// Notes that a condition is unknown because of something outside the script: the result of a program, or whether a
  /// file exists.
  void doubt_outcome(const std::string& what) { doubts_.insert(plain(what)); }
  /// `words` marked as unknown because of the unknown values in `from`; without `from`, because of the current doubts.
  std::string derived(const std::string& words, const std::string& from);
  std::string derived(const std::string& words);

 private:
  friend class WordMaker;
  friend class Weighing;

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
  Truth run_text(const std::string& text, const ScriptPosition& at);
  Truth run_script_file(const std::string& path, std::vector<std::string> arguments, bool own_shell);
  Truth call_function(const Tree& body, std::vector<std::string> arguments);
  Truth run_program(const std::vector<std::string>& words);
  void doubt_program(const std::vector<std::string>& words);
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
  int decide(Decision decision);
  bool decide_whether(const ScriptPosition& at, int site, const std::string& condition, bool usual, bool open);
  Truth probe(const Tree& condition);
  void settle_assumptions(bool relied_on);
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
  std::optional<std::string> raw_value(const ParameterExpansion& parameter, bool in_words);
  bool set_for_sure(const Part& part, const std::optional<std::string>& value);
  bool default_stands(const Part& part, const std::optional<std::string>& value);
  bool stands_in(const Part& part);
  std::string with_op(const Part& part, std::optional<std::string> value);
  std::string cut(const ParameterExpansion& parameter, const std::string& value);
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
  std::string found_file(const std::string& path) const;  ///< path of the existing file; empty if there is none

  Reading reading_;
  const Choices& choices_;
  State state_;
  std::map<std::string, Tree> functions_;
  std::vector<std::map<std::string, std::optional<Variable>>> locals_;
  std::vector<std::string> prefix_;  ///< words prepended to programs that an inner shell starts
  std::string script_folder_;
  ScriptPosition at_;
  Flow flow_ = Flow::on;
  std::set<std::string> doubts_;                         ///< why the current condition is unknown
  std::set<std::string> assumed_;                        ///< variables that it assumes to be unset
  std::map<std::string, std::set<std::string>> causes_;  ///< unknown value -> unknown values it was derived from
  int levels_ = 0;                                       ///< number of loops to leave
  Output* output_ = nullptr;
  std::optional<std::string> input_;
  std::map<Decision, std::size_t> decided_;  ///< index in Reading::decisions
  std::set<std::string> assigned_;           ///< names assigned anywhere in the scripts
  int depth_ = 0, substitutions_ = 0;
  long steps_left_, produced_ = 0;
};

/// Evaluates an integer expression of Bash. Nothing if a value in it is unknown, or, with a remark, if it is not a
/// valid expression.
std::optional<long long> arithmetic_value(const std::string& expression, ScriptEvaluator& evaluator);
/// The expression with its names replaced by their values.
std::string arithmetic_words(const std::string& expression, ScriptEvaluator& evaluator);

/// Whether `words` as a whole matches a pattern with * ? [..], in which \x is the literal x.
bool fits(const std::string& words, const std::string& pattern);
bool is_space(char c);  ///< blank or line end
/// Length of the shortest or longest prefix (or suffix) of `words` that matches a pattern; npos if none does.
std::size_t fitting_prefix(const std::string& words, const std::string& pattern, bool longest);
std::size_t fitting_suffix(const std::string& words, const std::string& pattern, bool longest);

/// Separates the doubts and assumptions of one condition from those of the enclosing condition, which the destructor
/// restores.
class Weighing {
 public:
  explicit Weighing(ScriptEvaluator& evaluator) : evaluator_(evaluator) { exchange(); }
  ~Weighing() {
    exchange();
    if (!hands_on_) return;
    evaluator_.doubts_.merge(doubts_);
    evaluator_.assumed_.merge(assumed_);
  }
  Weighing(const Weighing&) = delete;
  Weighing& operator=(const Weighing&) = delete;
  void hand_on() { hands_on_ = true; }  ///< also adds them to the enclosing condition

 private:
  void exchange() {
    doubts_.swap(evaluator_.doubts_);
    assumed_.swap(evaluator_.assumed_);
  }
  ScriptEvaluator& evaluator_;
  std::set<std::string> doubts_, assumed_;
  bool hands_on_ = false;
};

/// Whether a command's result depends only on words and variables.
bool is_test(const Tree& tree);

/// One operand or operator of [ ] and [[ ]].
struct Operand {
  std::string words;
  std::string pattern;  ///< for [[ ]]: the words as a pattern
  bool quoted = false;  ///< not an operator
};
Truth test(const std::vector<Operand>& operands, bool patterns, ScriptEvaluator& evaluator);

/// The separator of two words at words[at], with IFS `separators`: blanks, or one other character with surrounding
/// blanks, before which an empty word counts as a word.
struct Separator {
  std::size_t end;
  bool ends_empty_word;
};
Separator separator_at(const std::string& words, std::size_t at, const std::string& separators);

/// The words to which {a,b} and {1..8} in a word expand.
std::vector<Word> expand_braces(const Word& word);

/// The output of a program that can be computed without running it (dirname, seq, tr, ...); nothing for other programs.
std::optional<std::string> output_of(const std::vector<std::string>& words, const std::optional<std::string>& input);
/// Whether `output_of` supports the program, given suitable words and input.
bool is_known_program(const std::string& name);
/// The output of echo and printf.
std::string printed(const std::vector<std::string>& words);

/// "a/./b/../c" -> "a/c"
std::string tidy_path(const std::string& path);

}  // namespace tessera::shell
