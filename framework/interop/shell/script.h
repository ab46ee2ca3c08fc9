#pragma once

#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "framework/interop/shell/marks.h"

// The syntax tree of a Bash script, before expansion.

namespace tessera::shell {

struct Node;
using Tree = std::shared_ptr<const Node>;
struct ParameterExpansion;

/// A piece of a word.
struct Part {
  enum class Kind {
    text,        ///< unquoted text: may be a pattern; is split like a value
    quoted,      ///< '...', \x, or text in "..."
    parameter,   ///< $NAME, ${...}
    command,     ///< $(...), `...`
    arithmetic,  ///< $((...)): `inside` is the expression
    group,       ///< "...": `inside`
    stream       ///< <(...): its file name is unknown
  };
  Kind kind = Kind::text;
  std::string words;  ///< the text; for other kinds the source text, "$(date)"
  std::shared_ptr<const ParameterExpansion> parameter;
  Tree body;                 ///< for command
  std::vector<Part> inside;  ///< for group and arithmetic
};

struct Assignment;

struct Word {
  std::vector<Part> parts;
  int line = 0;
  std::shared_ptr<const Assignment> assignment;  ///< for an argument of export, declare or local that assigns
};

/// ${name}, with everything that is possible between the braces.
struct ParameterExpansion {
  std::string name;       ///< NAME, a digit, one of @*#?$!-
  bool length = false;    ///< ${#name}
  bool indirect = false;  ///< ${!name}
  bool prefix = false;    ///< ${!name*}: the variables whose names begin with it
  bool subscripted = false;
  Word subscript;      ///< [@], [*], [2]
  std::string op;      ///< ":-" "#" "##" "%" "/" "//" ":" "^^" ...; empty: the value
  Word first, second;  ///< operands of the op; second: the replacement for "/", the length for ":"
  bool has_second = false;
};

struct Assignment {
  std::string name;
  bool append = false;  ///< +=
  bool subscripted = false;
  Word subscript;
  bool list = false;        ///< NAME=( items )
  std::vector<Word> items;  ///< an item [key]=value has its key in `keys`
  std::vector<Word> keys;   ///< one for each item; empty if the item has no key
  Word value;
  bool bare = false;  ///< `export NAME`: nothing is assigned
  int line = 0;
};

struct Redirect {
  std::string op;              ///< ">" ">>" "<" "<<" "<<<" ">&" "<&" "&>" "&>>"
  int from = -1;               ///< file descriptor before the op; -1: none
  Word target;                 ///< file; for "<<<" the text
  std::shared_ptr<Word> here;  ///< for "<<": the lines that follow
};

struct CaseItem {
  std::vector<Word> patterns;
  Tree body;
  bool falls_through = false;  ///< ends with ;&
  bool goes_on = false;        ///< ends with ;;&: the patterns of the next ones are tried too
};

/// A command of any kind.
struct Node {
  enum class Kind {
    simple,
    list,
    and_or,
    pipeline,
    branches,
    loop,
    each,
    counted,
    choice,
    group,
    subshell,
    function,
    test,
    arithmetic
  };
  Kind kind = Kind::simple;
  ScriptPosition at;
  int site = 0;                         ///< unique number in its text
  std::vector<Assignment> assignments;  ///< simple: before the command
  std::vector<Word> words;              ///< simple, test, each; choice: its subject; arithmetic: its expression
  std::vector<Redirect> redirects;
  std::vector<Tree> children;      ///< list, pipeline, and_or; branches: condition, body, condition, body, ..., else
  std::vector<std::string> joins;  ///< and_or: "&&" or "||" before each child but the first
  std::vector<CaseItem> items;     ///< choice
  std::string name;                ///< each, function
  std::string source;              ///< source text, for conditions and loops
  bool negated = false;            ///< ! pipeline
  bool background = false;         ///< subshell: it is a command before &
  bool asks = false;               ///< each: select
  bool until = false;              ///< loop
  bool all_arguments = false;      ///< each: no `in`
};

/// A place that was interpreted differently from Bash.
struct Remark {
  ScriptPosition at;
  std::string words;
};

struct ParsedScript {
  Tree tree;
  std::vector<Remark> remarks;
  std::set<std::string> assigned;  ///< names assigned from something other than their own value: not NAME=$NAME:x
  std::string error;  ///< why the rest could not be parsed; `tree` is the part before, which Bash would run
  ScriptPosition error_at;
};

/// Parses a text. `at` is the position of its first line. A text from a value (eval, bash -c) is `inner`: all its lines
/// have position `at`, and it may contain marks.
ParsedScript parse_script(std::string_view text, const ScriptPosition& at, bool inner);
/// Parses a text as the content of double quotes.
Word parse_quoted(std::string_view text, const ScriptPosition& at);

}  // namespace tessera::shell
