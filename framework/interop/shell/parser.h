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
  bool skip_blanks();
  void skip_comment();
  void new_line();
  void skip_lines();
  std::string_view reserved() const;
  bool take(std::string_view reserved_word);
  void expect(std::string_view reserved_word, std::size_t opened);
  bool ends_list() const;
  std::string source(std::size_t from, std::size_t to) const;

  // commands
  Tree list();
  bool statement(Node& into);
  Tree and_or();
  Tree pipeline();
  bool take_time();
  void name_of_descriptor(Node& node);
  Tree command();
  Tree simple();
  bool simple_argument(Node& node);
  bool declares(const Node& node) const;
  bool goes_on_after_comment();
  bool redirect(Node& node);
  bool redirect_ahead() const;
  void redirects(Node& node);
  void here_document(Redirect& redirect, bool strip);
  void here_lines();
  bool assignment_ahead() const;
  std::size_t subscript_end(std::size_t at) const;
  Assignment assignment();
  void assigned_list(Assignment& out);

  // compound commands
  Tree compound();
  Tree branches();
  Tree loop();
  Tree each();
  void counted(Node& node);
  void loop_body(Node& node, std::size_t opened);
  Tree choice();
  CaseItem case_item(std::size_t opened);
  Tree function_named(std::string name);
  bool function_ahead() const;
  Tree test();
  Tree arithmetic_command();
  Tree enclosed(Node::Kind kind, std::string_view open, std::string_view close);
  std::shared_ptr<Node> node(Node::Kind kind);

  // words
  /// `assigned`: the value of an assignment, in which ~ is a home also behind a colon.
  Word word(bool assigned = false);
  void tilde(std::vector<Part>& out);
  bool tilde_ahead(const std::vector<Part>& before, bool assigned) const;
  void group_of_patterns(Word& out);
  Word word_until(std::string_view stops, bool in_quotes);
  Word regular_expression();
  bool word_piece(Word& out);
  void add(std::vector<Part>& out, Part::Kind kind, std::string_view words);
  void add_char(std::vector<Part>& out, Part::Kind kind);
  void single_quotes(std::vector<Part>& out);
  void double_quotes(std::vector<Part>& out);
  bool quoted_piece(std::vector<Part>& out, std::string_view escapable);
  void escaped_c(std::vector<Part>& out);
  std::size_t placeholder_ahead() const;
  std::size_t parentheses_ahead() const;

  // expansions that begin with a dollar sign
  void dollar(std::vector<Part>& out, bool in_quotes);
  void backticks(std::vector<Part>& out);
  void substitution(std::vector<Part>& out);
  void stream(std::vector<Part>& out);
  std::size_t arithmetic_end() const;
  void arithmetic(std::vector<Part>& out, std::size_t end);
  void arithmetic_from(std::vector<Part>& out, std::size_t begin, std::size_t end, std::size_t after);
  std::size_t bracket_end() const;
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
