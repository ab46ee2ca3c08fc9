#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "framework/interop/shell/script.h"

// Implementation of parse_script. Its functions are in parser.cpp (commands), compound.cpp (if, for, case, ...),
// words.cpp (words and quotes) and parameters.cpp (expansions that begin with a dollar sign).

namespace tessera::shell {

struct SyntaxError {
  std::string words;
  ScriptPosition at;
};

/// A recursive-descent parser over the characters of a text, without a separate lexer, because in Bash the context
/// determines where a word ends.
class Parser {
 public:
  Parser(std::string_view text, const ScriptPosition& at, bool inner);
  ParsedScript script();
  Word all_quoted();

 private:
  // characters
  bool ended() const { return i_ >= text_.size(); }
  char ahead(std::size_t k = 0) const { return i_ + k < text_.size() ? text_[i_ + k] : '\0'; }
  bool starts(std::string_view words) const { return text_.substr(i_, words.size()) == words; }
  ScriptPosition place(std::size_t at) const;
  ScriptPosition place() const { return place(i_); }
  [[noreturn]] void fail(const std::string& words, std::size_t at) const;
  void remark(const std::string& words) { remarks_.push_back({place(), words}); }
  /// Index of the line's end; 0 if non-blank characters precede it.
  std::size_t blanks_to_line_end(std::size_t from) const;
  /// Blanks and lines that a backslash joins. True when a line was joined.
  bool skip_blanks();
  void skip_comment();
  void new_line();
  /// To the next thing that is not a blank, a comment, or the end of a line.
  void skip_lines();
  /// The word ahead if it could be one that Bash reserves.
  std::string_view reserved() const;
  bool take(std::string_view reserved_word);
  void expect(std::string_view reserved_word, std::size_t opened);
  bool ends_list() const;
  std::string source(std::size_t from, std::size_t to) const;

  // commands
  Tree list();
  /// One command of a list. False when the list is at its end.
  bool statement(Node& into);
  Tree and_or();
  Tree pipeline();
  /// `time -p`, which changes nothing for the command after it.
  bool take_time();
  /// {NAME}> file: the word before was the name of a file descriptor.
  void name_of_descriptor(Node& node);
  Tree command();
  Tree simple();
  /// An assignment, a redirection or a word of a command. False at its end.
  bool simple_argument(Node& node);
  bool declares(const Node& node) const;
  /// A comment between two lines of one command. Bash ends the command there; whoever wrote flags after it meant them
  /// to belong to the command.
  bool goes_on_after_comment();
  bool redirect(Node& node);
  bool redirect_ahead() const;
  void redirects(Node& node);
  void here_document(Redirect& redirect, bool strip);
  /// Reads the lines of the here-documents that the line before began.
  void here_lines();
  bool assignment_ahead() const;
  /// Index of the ] that closes the [ at `at`, in the same line; 0: none does.
  std::size_t subscript_end(std::size_t at) const;
  Assignment assignment();
  void assigned_list(Assignment& out);

  // compound commands
  /// A command that is not a simple one; null when a simple one is ahead.
  Tree compound();
  Tree branches();
  Tree loop();
  Tree each();
  /// for ((a; b; c))
  void counted(Node& node);
  void loop_body(Node& node, std::size_t opened);
  Tree choice();
  CaseItem case_item(std::size_t opened);
  Tree function_named(std::string name);
  bool function_ahead() const;
  /// [[ ... ]]: words, and operators as words of one piece of text.
  Tree test();
  Tree arithmetic_command();
  Tree enclosed(Node::Kind kind, std::string_view open, std::string_view close);
  std::shared_ptr<Node> node(Node::Kind kind);

  // words
  /// `assigned`: the value of an assignment, in which ~ is a home also behind a colon.
  Word word(bool assigned = false);
  /// ~, ~/x: the variable HOME; ~+ and ~-: PWD and OLDPWD; ~name: unknown.
  void tilde(std::vector<Part>& out);
  /// Whether a ~ that means a home folder is ahead: at the begin of a word, and in NAME=~/x and NAME=a:~/x.
  bool tilde_ahead(const std::vector<Part>& before, bool assigned) const;
  /// @(a|"$B"), whose parentheses and bars are part of the word.
  void group_of_patterns(Word& out);
  /// Up to one of `stops`, which stays ahead: the argument of ${...}, a subscript.
  Word word_until(std::string_view stops, bool in_quotes);
  /// The operand of =~, in which parentheses and bars are no operators.
  Word regular_expression();
  /// One more piece of an unquoted word. False at its end.
  bool word_piece(Word& out);
  void add(std::vector<Part>& out, Part::Kind kind, std::string_view words);
  /// Adds the next character as it is; a mark is added as a whole.
  void add_char(std::vector<Part>& out, Part::Kind kind);
  void single_quotes(std::vector<Part>& out);
  void double_quotes(std::vector<Part>& out);
  /// Reads an escape or an expansion between double quotes. False if a plain character is ahead.
  bool quoted_piece(std::vector<Part>& out, std::string_view escapable);
  /// $'...'
  void escaped_c(std::vector<Part>& out);
  /// Index after a <placeholder> that is ahead; 0 when what is ahead is a redirection.
  std::size_t placeholder_ahead() const;
  /// Index after the parentheses ahead, which close in the same line; 0 when they do not.
  std::size_t parentheses_ahead() const;

  // expansions that begin with a dollar sign
  void dollar(std::vector<Part>& out, bool in_quotes);
  /// `commands`
  void backticks(std::vector<Part>& out);
  /// $( commands ); <( commands ), >( commands ): a stream
  void commands(std::vector<Part>& out, Part::Kind kind);
  /// Index of the )) that closes the (( ahead; 0 when it does not close that way.
  std::size_t arithmetic_end() const;
  void arithmetic(std::vector<Part>& out, std::size_t end);
  /// $(( expression )), $[ expression ]: from `begin` to `end`; `after` is the index after it.
  void arithmetic_from(std::vector<Part>& out, std::size_t begin, std::size_t end, std::size_t after);
  /// Index of the ] that closes the $[ ahead; 0 when none does in this line.
  std::size_t bracket_end() const;
  /// ${...}
  void braces(std::vector<Part>& out, bool in_quotes);
  void parameter_name(ParameterExpansion& out);
  void parameter_op(ParameterExpansion& out, bool in_quotes);

  struct Deeper;
  struct HereDocument {
    std::string end;
    bool strip = false, quoted = false;
    std::shared_ptr<Word> into;
  };

  std::string_view text_;
  ScriptPosition at_;
  bool inner_;
  std::size_t i_ = 0;
  bool in_list_ = false;  ///< between the parentheses of NAME=( )
  int depth_ = 0, sites_ = 0;
  std::vector<std::size_t> lines_;  ///< start of each line
  std::vector<HereDocument> pending_;
  std::vector<Remark> remarks_;
  /// Names that are assigned; names whose new value contains the old value.
  std::set<std::string> assigned_, extended_;
};

/// Counts the nesting depth of the parser.
struct Parser::Deeper {
  explicit Deeper(Parser& parser);
  ~Deeper() { --parser_.depth_; }
  Deeper(const Deeper&) = delete;
  Deeper& operator=(const Deeper&) = delete;

 private:
  Parser& parser_;
};

bool is_blank(char c);
bool is_name_start(char c);
bool is_name_char(char c);
/// Whether an unquoted word ends before this character.
bool is_meta(char c);

}  // namespace tessera::shell
