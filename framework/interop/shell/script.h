#pragma once

#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "framework/interop/shell/marks.h"

// A Bash script as a tree. Nothing in it is expanded yet.

namespace tessera::shell {

struct Node;
using Tree = std::shared_ptr<const Node>;
struct ParameterExpansion;

/// A piece of a word.
struct Part {
  enum class Kind {
    text,        ///< as it stands: may be a pattern, is split where a value would be
    quoted,      ///< '...', \x, or text in "..."
    parameter,   ///< $NAME, ${...}
    command,     ///< $(...), `...`
    arithmetic,  ///< $((...)): `inside` is the expression
    group,       ///< "...": `inside`
    stream       ///< <(...): what its name is nobody knows
  };
  Kind kind = Kind::text;
  std::string words;  ///< the text; else what was written, "$(date)"
  std::shared_ptr<const ParameterExpansion> parameter;
  Tree body;                 ///< of a command
  std::vector<Part> inside;  ///< of a group, an expression
};

struct Assignment;

struct Word {
  std::vector<Part> parts;
  int line = 0;
  std::shared_ptr<const Assignment> assignment;  ///< an argument of export, declare, local that assigns
};

/// ${name}, with all that can stand between the braces.
struct ParameterExpansion {
  std::string name;       ///< NAME, a digit, one of @*#?$!-
  bool length = false;    ///< ${#name}
  bool indirect = false;  ///< ${!name}
  bool subscripted = false;
  Word subscript;      ///< [@], [*], [2]
  std::string op;      ///< ":-" "#" "##" "%" "/" "//" ":" "^^" ...; empty: the value
  Word first, second;  ///< what follows the op; of "/" also the replacement, of ":" also the length
  bool has_second = false;
};

struct Assignment {
  std::string name;
  bool append = false;  ///< +=
  bool subscripted = false;
  Word subscript;
  bool list = false;        ///< NAME=( items )
  std::vector<Word> items;  ///< an item [key]=value has its key in `keys`
  std::vector<Word> keys;   ///< as many as items; empty ones where there is none
  Word value;
  bool bare = false;  ///< `export NAME`: nothing is assigned
  int line = 0;
};

struct Redirect {
  std::string op;              ///< ">" ">>" "<" "<<" "<<<" ">&" "<&" "&>" "&>>"
  int from = -1;               ///< the number before it
  Word target;                 ///< file; of "<<<" the text
  std::shared_ptr<Word> here;  ///< of "<<" the lines that follow
};

struct CaseItem {
  std::vector<Word> patterns;
  Tree body;
  bool falls_through = false;  ///< ends with ;& or ;;&
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
  int site = 0;                         ///< a number of its own in its text
  std::vector<Assignment> assignments;  ///< simple: before the command
  std::vector<Word> words;              ///< simple, test, each; choice: its subject; arithmetic: its expression
  std::vector<Redirect> redirects;
  std::vector<Tree> children;      ///< list, pipeline, and_or; branches: condition, body, condition, body, ..., else
  std::vector<std::string> joins;  ///< and_or: "&&" or "||" before each child but the first
  std::vector<CaseItem> items;     ///< choice
  std::string name;                ///< each, function
  std::string source;              ///< what was written, of conditions and loops
  bool negated = false;            ///< ! pipeline
  bool until = false;              ///< loop
  bool all_arguments = false;      ///< each: no `in`
};

/// What was read otherwise than Bash reads it.
struct Remark {
  ScriptPosition at;
  std::string words;
};

struct ParsedScript {
  Tree tree;
  std::vector<Remark> remarks;
  std::set<std::string> assigned;  ///< names that something assigns which does not look at them: not NAME=$NAME:x
  std::string error;  ///< why the rest could not be read; `tree` is what stands before it, as Bash would run it
  ScriptPosition error_at;
};

/// Parse a text. `at` is the place of its first line; a text that came from a value (eval, bash -c) is `inner`: all its
/// lines count as that one, and it may hold marks.
ParsedScript parse_script(std::string_view text, const ScriptPosition& at, bool inner);
/// Parse a text as what stands between double quotes.
Word parse_quoted(std::string_view text, const ScriptPosition& at);

}  // namespace tessera::shell
