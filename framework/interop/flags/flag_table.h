#pragma once

#include <string>
#include <vector>

#include "framework/options/group.h"
#include "framework/options/mappings.h"

namespace tessera::flags {

/// The option at "group.name" or "group.name[0]"; null if there is none. Owned by `facts`.
const options::OptionFacts* option_at(const std::string& path, const options::Facts& facts);

/// Whether an option is a number, or a list of numbers: "list of 2 float", "int or null".
bool takes_numbers(const options::OptionFacts& option);

/// One flag of a command line, as it was written.
struct GivenFlag {
  std::string flag;                 ///< "--lr"
  std::vector<std::string> values;  ///< all words up to the next flag; an unknown value appears as ${NAME}
  options::Origin at;
};

/// Parses the flags of a command line: a word that begins with "--", or with "-" and a letter, is a flag;
/// "--flag=value" is split into two words.
std::vector<GivenFlag> flags_of(const std::vector<std::string>& argv);

/// One row of a table under mappings/flags/: how another program's flag is converted. See FlagTable.
struct FlagRow {
  enum class Kind { same, fixed, words, settings, derived, implied, ignored, refused, only, adds, agrees, keys };
  enum class Takes { none, one, optional, many };
  std::string flag;
  std::string dest;        ///< name of its argument in the other program: "adam_beta1"
  Kind kind = Kind::same;  ///< settings: only `settings` is set; implied: only `also` or `always`
  Takes takes = Takes::one;
  std::string to;     ///< "optimizer_config.eps", or one item: "optimizer_config.betas[0]"
  std::string fixed;  ///< Kind::fixed: the value that the bare flag sets
  std::vector<std::pair<std::string, std::string>> words;          ///< Kind::words: their word -> ours
  std::vector<std::pair<std::string, std::string>> refused_words;  ///< Kind::words: their word -> why it is refused
  std::vector<std::pair<std::string, std::string>> noted;  ///< Kind::words: their word -> what the converter reports
  std::string absent;       ///< our value if the flag is not given: the other program's default
  bool empty_text = false;  ///< `absent` is given as an empty text, which its argument is then; else null
  std::string missing;      ///< what is reported if no flag sets `to`
  std::string theirs;       ///< Kind::words: the other program's default, if `absent` deliberately means something else
  /// Further options and values that the flag sets; a flag that sets such an option itself takes precedence, wherever
  /// it is.
  std::vector<std::pair<std::string, std::string>> also;
  std::vector<std::string> also_to;  ///< further options that take the flag's value, as `also`
  /// Further options and values that take precedence over a flag that sets the option itself.
  std::vector<std::pair<std::string, std::string>> always;
  std::string why;  ///< Kind::ignored and Kind::refused

  /// Word -> further options and values, as `also`. With Kind::settings, the flag sets nothing else and takes no other
  /// word.
  std::vector<std::pair<std::string, std::vector<std::pair<std::string, std::string>>>> settings;
  std::string rule;               ///< Kind::derived: the rule of derived_flags.h
  std::vector<std::string> only;  ///< Kind::only: the values that are accepted
  std::string item;               ///< Kind::adds: what true adds to the list `to`
  std::string section;            ///< of a key of a file: the name of its section in the table; empty: a flag
  std::string keys;               ///< Kind::keys: the section with the keys of the file that the flag names
  bool nullable = false;          ///< of a key: null is a value, else it means that the key is not given
  bool optional = false;          ///< Kind::keys: the file may be missing
  bool decides = false;           ///< a refused value refuses the file; its other keys are not converted

  std::string option() const { return to.substr(0, to.find('[')); }  ///< "optimizer_config.betas"
};

/// The result of converting a flag. undecided: whether it is given, or its value, depends on an unknown condition of
/// the script.
enum class FlagStatus { mapped, ignored, planned, refused, unknown, undecided };
std::string word_of(FlagStatus status);

/// One flag of a command line after its conversion.
struct ConvertedFlag {
  GivenFlag given;
  FlagStatus status = FlagStatus::mapped;
  std::vector<std::string> to = {};       ///< the options that it sets
  std::vector<std::string> implied = {};  ///< options that follow from it, unless a flag sets them
  std::string why = {};                   ///< reason for every status except mapped
};

struct Conversion {
  /// The other program's whole run: flags that are not given have its defaults, even if they equal ours.
  options::Value recipe;
  std::vector<ConvertedFlag> flags = {};  ///< one for each given flag, in order
};

/// A table of mappings/flags/: every flag of another program and how it is converted.
///
///     name: mindspeed-llm          name for --from; "program@version" if there are several versions
///     doc: MindSpeed-LLM 2.1       the program
///     base: megatron.yaml          rows of another table that also apply, unless redefined here
///     spelled: underscores         flags of the base are written with underscores
///     removed: {--flag: why}       flags of the base that this program rejects
///     flags: {--flag: row}
///     keys: {section: {key: row}}   keys of JSON files that flags name, "text_decoder.num_layers"; see json_keys.h
///
/// A row is exactly one of
///     to                   the value is copied; with `takes: many` all values up to the next flag, as a list
///     to + value           the bare flag sets this value
///     to + words           their word -> our word
///     settings             their word -> options and values; a key of several words is written with blanks
///     derived: RULE        sets options together with the values of other flags: the rules of derived_flags.h; `to`
///                          beside it, as beside `ignored`, is only the option of `absent`
///     ignored: why         can be dropped without changing results, and why; the converter reports it
///     refused: why         dropping it would change the run; the converter stops
///     only: [values] + why what is not one of these values is refused; the others change nothing
///     to + adds: item      true adds the item to the list `to`, false does not
///     to + agrees: true    refused unless it equals the option, which another flag or key sets
///     keys: section        names a JSON file; its keys are converted as that section says
/// `to: optimizer_config.betas[0]` sets one item of a list. An option of a type that is not chosen is dropped; the
/// schemas tell which these are. `absent` is our value if the flag is not given, that is, the other program's default;
/// where we deliberately do something else without the flag, `theirs` is their default. `missing` is what the converter
/// reports if no flag sets the option.
/// `also` are further options and values that the flag sets; a flag that sets the option itself takes precedence.
/// `always` is like `also`, but takes precedence over such a flag. `settings` beside `words` are further options and
/// values of a word, as `also`; beside `to` alone they also list all words that the flag accepts. `also_to`, a list of
/// options, gives them the flag's own value, as `also`. `refused_words` beside `words` gives, for each further word,
/// why it is refused; `noted`, what the converter reports of a word. A word may be converted to a word that the option
/// does not support yet: that is planned. `takes` is the number of words that follow: none, one, optional (none or one)
/// or many; the default is one, with `value` none. `dest` is the name of its argument if it is not the flag's name with
/// underscores.
///
/// What a key of a file sets takes precedence over every flag. `absent` of a key is the value in the file's own words
/// that the program assumes if a file has the map of the key, but not the key. `decides: true`: if its value is
/// refused, the other keys of the file are not converted. `optional: true` beside `keys`: a missing file is only noted.
/// `nullable: true`: null is a value of a key; else it means that the key is not given.
class FlagTable {
 public:
  /// Reads the table in a file of mappings/flags/, "megatron.yaml", with its bases. Throws ConfigError.
  static FlagTable from(const std::string& file, const options::Mappings& mappings);
  /// Reads a table that has no base. Throws ConfigError.
  static FlagTable from(const options::Value& table);
  /// The table with this name for --from; "megatron" means `usual`. Throws ConfigError, listing the tables, if there is
  /// none.
  static FlagTable named(const std::string& name, const options::Mappings& mappings);
  static constexpr const char* usual = "megatron@core_v0.12.1";

  /// Converts a command line to a recipe that repeats the other program's run. Options of a type that is not chosen (by
  /// `facts`) are dropped. Refused and unknown flags are problems in `report`; ignored flags and flags without effect
  /// are notes. A flag for an option not implemented yet has the status `planned`, unless its value changes nothing;
  /// the recipe contains the option nevertheless, and reading that recipe reports it.
  Conversion convert(const std::vector<GivenFlag>& flags, const options::Facts& facts, options::Report& report) const;
  /// Converts a list of words; returns only the recipe.
  options::Value convert(const std::vector<std::string>& argv, const options::Facts& facts,
                         options::Report& report) const;

  const FlagRow* find(const std::string& flag) const;  ///< null if there is none
  const std::vector<FlagRow>& rows() const { return rows_; }
  std::vector<std::string> flags() const;
  /// Whether some of its rows are keys of files, so that a command line alone does not describe a run.
  bool has_files() const;
  const std::string& name() const { return name_; }
  const std::string& doc() const { return doc_; }

 private:
  void add(const options::Value& table);
  std::string name_, doc_;
  std::vector<FlagRow> rows_;
};

}  // namespace tessera::flags
