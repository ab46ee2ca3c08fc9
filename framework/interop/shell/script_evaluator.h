#pragma once

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "framework/interop/shell/matcher.h"
#include "framework/interop/shell/reader.h"
#include "framework/interop/shell/variable.h"

// Implementation of follow_script. Functions of ScriptEvaluator are in script_evaluator.cpp (commands), control.cpp
// (if, loops, case), expansion.cpp, file_patterns.cpp and parameter_value.cpp (words), script_files.cpp (what is read
// and written), inner_shells.cpp and xargs.cpp (programs), builtins.cpp and variables.cpp.

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

/// Where a function was called from, and the variables that it hides.
struct Call {
  std::map<std::string, std::optional<Variable>> hidden;
  std::string name;
  ScriptPosition from;
};

/// The state of which a subshell gets a copy.
struct State {
  std::map<std::string, Variable> variables;
  std::set<std::string> exports;       ///< names that are exported as soon as they get a value
  std::vector<std::string> arguments;  ///< $1 ...
  bool arguments_known = false;        ///< there are no further arguments
  int shifted = 0;                     ///< number of unknown arguments removed by shift
  std::string folder;                  ///< the working directory; the initial one is the unknown ${PWD}
  std::map<std::string, Tree> functions;
  std::vector<Call> calls;
  std::set<std::string> options;    ///< of set and shopt, those that are on: "errexit", "nullglob"
  std::string at_exit;              ///< trap ... EXIT
  std::optional<std::string> name;  ///< $0 of bash -c; nothing: the file that is read
};

/// Collects the output of commands.
struct Output {
  std::string words;
  bool known = true;
  bool elsewhere = false;  ///< nobody reads it: /dev/null, or another file descriptor
};

enum class Flow { on, leave_loop, next_round, leave_function, leave_script };

class ScriptEvaluator {
 public:
  ScriptEvaluator(const std::string& file, const Inputs& inputs, const Choices& choices, long steps);
  Reading read(const std::string& text);

  // used by arithmetic and tests
  // A name may have a subscript here, "A[i+1]", which is evaluated.
  std::optional<std::string> value_of(const std::string& name);  ///< nothing if it is unset or unknown
  std::string value_or_mark(const std::string& name);            ///< an unknown value as a mark
  void assign(const std::string& name, std::string value);
  void set_list(const std::string& name, const std::vector<std::string>& items);
  bool is_file(const std::string& path, char kind);
  bool has(const std::string& name);
  bool option(const std::string& name) const { return state_.options.count(name) != 0; }
  /// Ends the evaluation at the current line.
  [[noreturn]] void stop(const std::string& words) const { throw Stop{words, at_}; }
  Spend spend() {
    return [this](long cost) { step(cost); };
  }
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
  /// A && B || C. An unknown result counts as true, unless what follows would end the script.
  Truth run_and_or(const Node& node);
  Truth run_pipeline(const Node& node);
  Truth run_simple(const Node& node);
  Truth run_words(const Node& node, std::vector<std::string> words);
  Truth run_subshell(const Tree& body);
  Truth with_redirects(const Node& node, const std::function<Truth()>& action);
  void read_input(const Redirect& redirect);
  void write_file(const std::string& name, const Output& output, bool append);
  /// eval, bash -c: a text that is a script.
  Truth run_text(const std::string& text, const ScriptPosition& at);
  /// source FILE, bash FILE. A shell of its own leaves nothing behind.
  Truth run_script_file(const std::string& path, std::vector<std::string> arguments, bool own_shell);
  Truth call_function(const std::string& name, std::vector<std::string> arguments);
  /// NAME=value alone, which succeeds as its last substitution does. $(< file) prints the file.
  Truth run_assignments(const Node& node);
  /// Runs a condition: a command at which `set -e` does not end the script.
  Truth run_condition(const Tree& tree);
  Truth run_command(const Node& node, const std::vector<std::string>& words, bool functions);
  /// Sets $? and, under `set -e`, ends the script at a command that certainly fails.
  Truth settled(const Node& node, Truth truth);
  /// Whether what is printed goes where nothing reads it: >&2, > /dev/null.
  bool is_elsewhere(const Redirect& redirect);
  /// exec < file: what is read from now on.
  void keep_redirects(const Node& node);
  /// <(...): what can be read from it.
  std::optional<std::string> output_of_stream(const Word& word);
  void run_at_exit();
  Truth run_program(const std::vector<std::string>& words);
  /// The output of readlink -f and realpath.
  std::optional<std::string> tidied_paths(const std::vector<std::string>& words) const;
  void write_tee(const std::vector<std::string>& words);
  /// Starts what xargs starts with the words of its input. Nothing: its options, or what it is to print, are not known.
  std::optional<Truth> run_xargs(const std::vector<std::string>& words);
  /// Notes that the output of a program is unknown because of unknown values in its words and input, if it is a program
  /// whose output follows from them.
  void doubt_program(const std::vector<std::string>& words);
  /// bash -c TEXT, bash FILE, sbatch FILE, and a here-document for one of them. False when `words` start no shell.
  bool run_inner_shell(const std::vector<std::string>& words);
  /// Another script as a program: ./train.sh, srun ./train.sh. False when no word is one.
  bool run_other_script(const std::vector<std::string>& words);
  /// A shell of its own has the exported variables only.
  void forget_inner_state();
  /// The commands in `text`, started by the first `count` of `words`. `name`: $0, if it is not the file.
  void run_inside(const std::vector<std::string>& words, std::size_t count, const std::string& text,
                  std::vector<std::string> arguments, const std::string& name = "");
  std::vector<std::pair<std::string, std::string>> exported() const;
  /// Adds the names that a script assigns: as long as they are not set they are empty, not unknown.
  void learn(ParsedScript& script);
  /// A copy of the state for a subshell. It counts as steps of the evaluation.
  State copy_of_state();

  // control
  Truth run_branches(const Node& node);
  /// while, until. If the condition is unknown: no round, or one if the caller chose so.
  Truth run_loop(const Node& node);
  Truth run_each(const Node& node);
  /// for ((a; b; c))
  Truth run_counted(const Node& node);
  Truth run_choice(const Node& node);
  /// After a loop's body: whether the loop continues.
  bool end_of_round();
  Truth run_items(const Node& node, const std::vector<std::string>& items);
  /// Whether a pattern of `item` fits, perhaps. `known`: for certain.
  bool matches_item(const CaseItem& item, const std::string& subject, bool& known);
  /// Index of the branch to take: the caller's choice, else that of `decision`. Records the decision, and why its
  /// condition is unknown.
  int decide(Decision decision);
  /// A decision whether something is done: branch 0, or not: branch 1.
  bool decide_whether(const ScriptPosition& at, int site, const std::string& condition, bool usual, bool open);
  /// Evaluates a condition that is not reached, to learn which unknown values it needs. Changes no state.
  Truth probe(const Tree& condition);
  /// What the last condition assumed to be unset is noted if it was relied on, and then cleared.
  void settle_assumptions(bool relied_on);
  /// Whether what a condition leads to ends the script: exit is one of its commands, or a function's that it calls.
  bool ends_script(const Tree& tree, int depth = 0) const;

  // words
  std::vector<std::string> fields(const std::vector<Word>& words);
  /// Adds the files that match a word; `pattern` is the word with what is quoted escaped. Without such files the word
  /// stands for itself, with a remark where the words of the command matter.
  void add_files(std::vector<std::string>& out, const std::string& words, const std::string& pattern);
  /// Existing files that match, sorted by their bytes. Nothing: there are none, or the folder is not known.
  std::optional<std::vector<std::string>> files_that_match(const std::string& pattern);
  std::string single(const Word& word);
  /// Quoted text is escaped, so that it stands for itself.
  std::string pattern(const Word& word);
  std::string expression(const Word& word);
  std::string arithmetic(const Part& part);
  /// $(...): what is printed, if that is known without running anything.
  std::string substitution(const Part& part);
  /// What the commands of $(...) or <(...) print. Nothing: it is not known, because of the doubts that are left.
  std::optional<std::string> printed_by(const Part& part);
  /// `special`: the characters that are escaped where they are quoted.
  std::string concat(const std::vector<Part>& parts, std::string_view special = {});
  /// The value of a parameter as one string; what is not known as a mark.
  std::string scalar(const Part& part, bool in_words);
  bool is_list(const Part& part) const;
  std::vector<std::string> list_items(const Part& part);
  /// ${!R}, where R is "A[@]".
  bool indirect_all(const ParameterExpansion& parameter) const;
  /// "${A[@]}" if nothing has assigned A: the environment can give it one value only.
  std::vector<std::string> items_of_none(const Part& part);
  /// The mark of a parameter without a value; `set -u` does not apply here.
  std::string mark_without_set_u(const ParameterExpansion& parameter);
  /// The words that replace. An & without quotes is the matched text from Bash 5.2 on, and a plain & before.
  std::string replacement(const ParameterExpansion& parameter);
  std::vector<std::string> names_with(const std::string& prefix) const;
  /// ${A[@]:1:2}: of a list with holes, elements from the index 1 on.
  std::vector<std::string> part_of_list(const Part& part, const Variable* variable);
  /// The elements joined by the first character of IFS, as "$*" does.
  std::string joined_items(const std::vector<std::string>& items);
  std::optional<std::string> raw_value(const ParameterExpansion& parameter, bool in_words);
  std::string length_of(const Part& part);
  /// "${A[@]}" where one string is wanted: blanks join it, the first character of IFS joins "${A[*]}".
  std::string list_as_one(const Part& part);
  /// The name that ${!NAME} stands for.
  std::string target_of(const ParameterExpansion& parameter);
  /// The name whose value is asked for, "A[2]"; an unknown one as a mark.
  std::string meant_name(const ParameterExpansion& parameter);
  /// Whether ${NAME:+words} is its words. If it is unknown whether NAME is set, it counts as not set.
  bool set_for_sure(const Part& part, const std::optional<std::string>& value);
  /// Whether the words of ${NAME:-words} are taken. If it is unknown whether NAME is set, they are.
  bool default_stands(const Part& part, const std::optional<std::string>& value);
  /// Whether the words of ${NAME:-words} or ${NAME:+words} stand in its place.
  bool stands_in(const Part& part);
  /// The value that ${NAME:-words} tests; for a list its elements as one.
  std::optional<std::string> value_to_ask(const Part& part);
  std::string with_op(const Part& part, std::optional<std::string> value);
  /// ${NAME:-words} and similar expansions as one string.
  std::string standing_in(const Part& part, const std::optional<std::string>& value);
  /// ${X/pattern/words}
  std::string replaced_in(const Part& part, const std::string& words);
  /// ${X#pattern}, ${X%pattern}
  std::string removed_from(const Part& part, const std::string& words);
  /// ${X^}, ${X^^}, ${X,}, ${X,,}, with a pattern of the letters that are meant
  std::string in_case(const Part& part, std::string words);
  /// ${X@Q} and similar expansions
  std::string transformed(const Part& part, const std::string& words);
  /// ${X@a}
  std::string attributes_of(const std::string& name);
  /// ${X:o:l}
  std::string cut(const ParameterExpansion& parameter, const std::string& value);
  /// Value of a parameter that is no variable: $#, $?, ...
  std::optional<std::string> special(const std::string& name);
  /// The functions that are running, the innermost first. Nothing: not so many are.
  std::optional<std::string> special_list(const std::string& name, long long index);
  std::optional<std::string> argument(int number);
  std::vector<std::string> all_arguments();
  std::string option_letters() const;
  /// Throws Stop for a variable that is certainly not set, under `set -u`.
  void must_be_set(const std::string& name);

  // variables
  std::string real_name(std::string name) const;  ///< follows declare -n
  Variable* find(const std::string& name);        ///< null: nobody has assigned it
  Variable& made(const std::string& name);
  /// The key that a subscript given as text stands for: 'A[$k]' in unset and in arithmetic is expanded once more.
  std::string key_of(const std::string& subscript);
  long long index_of(const std::string& subscript, const std::string& name);
  /// A[2], A[key]. Nothing: there is none.
  std::optional<std::string> element(const Variable& variable, const std::string& subscript, const std::string& name);
  void put(Variable& variable, const std::string& name, const std::string& subscript, std::string value);
  std::string with_attributes(const Variable& variable, std::string value);
  void must_be_writable(const Variable& variable, const std::string& name) const;

  // builtins
  using Words = std::vector<std::string>;
  /// Runs the builtin named by the first word; nothing if there is no such builtin.
  std::optional<Truth> builtin(const Node& node, const Words& words);
  std::optional<Truth> builtin_of_variables(const Node& node, const Words& words);
  std::optional<Truth> builtin_of_shell(const Words& words);
  /// export, declare, typeset, readonly, local
  Truth declare(const Node& node, const Words& words);
  /// Gives a name the attributes of a declaration: -x, -i, -A, ...
  void declare_name(const std::string& name, const std::string& options, const std::string& command);
  /// declare -p NAME: whether it exists; its output is unknown.
  Truth print_declared(const Words& names);
  /// set -euo pipefail, set -- a b c, set a b c
  Truth set(const Words& words);
  void set_option(char letter, bool on);
  void set_option(const std::string& name, bool on);
  Truth shopt(const Words& words);
  /// getopts LETTERS NAME [ARGUMENTS]
  Truth getopts(const Words& words);
  /// trap COMMANDS SIGNAL...: those for EXIT run at the end.
  Truth trap(const Words& words);
  /// printf -v NAME
  Truth print_to_variable(const Words& words);
  /// mapfile -t NAME
  Truth map_lines(const Words& words);
  Truth shift(const Words& words);
  Truth unset(const Words& words);
  Truth change_folder(const Words& words);
  Truth let(const Words& words);
  /// read NAME...
  Truth read_line(const Words& words);
  /// exit, return, break, continue
  Truth leave(const Words& words);
  Truth print(const Words& words);
  void unset_name(const std::string& name);
  void assign_all(const Assignment& assignment);
  /// A=(a b [7]=c), A+=(d)
  void assign_list(const Assignment& assignment);
  void emit(const std::string& words);
  void emit_unknown();

  /// The text of a file that the script wrote or that exists.
  std::optional<std::string> text_of_file(const std::string& path);
  std::string found_file(const std::string& path) const;  ///< path of the existing file; empty if there is none
  /// The one spelling of a path, relative to the initial working directory, whichever the current one is.
  std::string file_key(const std::string& path) const;
  bool is_removed(const std::string& key) const;  ///< by the script, and it did not write it again
  void remove_files(const std::vector<std::string>& words);
  /// The output of cat with files.
  std::optional<std::string> joined_files(const std::vector<std::string>& words);
  /// Adds the files written by the script that match `pattern`.
  void add_written(std::vector<std::string>& out, const std::string& pattern) const;

  Reading reading_;
  const Choices& choices_;
  State state_;
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
  std::map<std::string, std::optional<std::string>> files_;  ///< those that the script writes; nothing: unknown text
  std::set<std::string> removed_;                            ///< files and folders that it removes
  std::map<Decision, std::size_t> decided_;                  ///< index in Reading::decisions
  std::set<std::string> assigned_;                           ///< names assigned anywhere in the scripts
  int depth_ = 0, substitutions_ = 0;
  int code_ = 0;        ///< exit status of the last command; -1: unknown
  bool exact_ = false;  ///< `exit 3` or `return 3` gave it
  int guarded_ = 0;     ///< conditions around the current command, at which `set -e` does not end the script
  std::optional<Truth> substituted_;  ///< of the last substitution in the current command
  int option_at_ = 1;                 ///< getopts: index in the letters of one argument
  long steps_left_, produced_ = 0;
};

/// Evaluates an integer expression of Bash. Nothing if a value in it is unknown, or, with a remark, if it is not a
/// valid expression.
std::optional<long long> arithmetic_value(const std::string& expression, ScriptEvaluator& evaluator);
/// The expression with its names replaced by their values.
std::string arithmetic_words(const std::string& expression, ScriptEvaluator& evaluator);

/// Whether `words` as a whole matches a pattern.
bool fits(const std::string& words, const std::string& pattern, bool ignore_case, const Spend& spend);
bool is_space(char c);  ///< blank or line end
/// Length of the shortest or longest prefix (or suffix) of `words` that matches a pattern; npos if none does.
std::size_t fitting_prefix(const std::string& words, const Piece& pattern, bool longest, const Spend& spend);
std::size_t fitting_suffix(const std::string& words, const Piece& pattern, bool longest, const Spend& spend);

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

bool is_number(const std::string& words);  ///< at most five digits

/// Whether a command's result depends only on words and variables.
bool is_test(const Tree& tree);

/// One operand or operator of [ ] and [[ ]].
struct Operand {
  std::string words;
  std::string pattern;  ///< for [[ ]]: the words as a pattern; behind =~ as a regular expression
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

/// Whether a word, with what is quoted escaped, is a pattern of file names. `extended`: @(a|b) counts too.
bool is_file_pattern(const std::string& pattern, bool extended);
/// Characters that are escaped in a pattern where they are quoted.
constexpr std::string_view pattern_characters = "*?[]\\()|+@!-^";
/// `words` with a backslash before each of the `special` characters.
std::string with_escapes(const std::string& words, std::string_view special);

/// The words to which {a,b} and {1..8} in a word expand.
std::vector<Word> expand_braces(const Word& word);

/// The output of a program that can be computed without running it (dirname, seq, tr, ...); nothing for other programs.
std::optional<std::string> output_of(const std::vector<std::string>& words, const std::optional<std::string>& input);
/// Whether `output_of` supports the program, given suitable words and input.
bool is_known_program(const std::string& name);
/// The output of echo.
std::string echoed(const std::vector<std::string>& words);
/// The output of printf: the format and its arguments. Nothing if an argument that a number or a width needs is
/// unknown.
std::optional<std::string> formatted(const std::vector<std::string>& words);
/// Where escapes stand: in $'...' and formats of printf; behind echo -e, which wants a 0 before octal digits; in the
/// argument of %b.
enum class Escapes { dollar, echo, argument };
/// `words` with \n, \x41, \u00e9, \033, ... replaced. `ends`: \c was found, which ends the output.
std::string unescaped(std::string_view words, Escapes kind, bool* ends = nullptr);
/// `words` in quotes from which Bash reads them again: ${X@Q}; printf %q.
std::string quoted(const std::string& words);
std::string escaped(const std::string& words);

/// "a/./b/../c" -> "a/c"
std::string tidy_path(const std::string& path);

}  // namespace tessera::shell
