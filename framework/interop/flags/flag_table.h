#pragma once

#include <string>
#include <vector>

#include "framework/options/group.h"
#include "framework/options/mappings.h"

namespace tessera::flags {

/// The option at "group.name" or "group.name[0]"; null when there is none.
const options::OptionFacts* option_at(const std::string& path, const options::Facts& facts);

/// One flag of a command line, as it was written.
struct GivenFlag {
  std::string flag;                 ///< "--lr"
  std::vector<std::string> values;  ///< all words up to the next flag; ${NAME} stands for what could not be known
  options::Origin at;
};

/// The flags of a command line: a word that begins with "--" is one, or with "-" and a letter; "--flag=value" is two
/// words.
std::vector<GivenFlag> flags_of(const std::vector<std::string>& argv);

/// One row of a table under mappings/flags/: what another program's flag becomes here.
struct FlagRow {
  enum class Kind { same, fixed, words, settings, derived, implied, ignored, refused };
  enum class Takes { none, one, optional, many };
  std::string flag;
  std::string dest;        ///< the name of its argument over there: "adam_beta1"
  Kind kind = Kind::same;  ///< settings, implied: `settings`, or `also` or `always`, is all it says
  Takes takes = Takes::one;
  std::string to;     ///< "optimizer_config.eps", or one item: "optimizer_config.betas[0]"
  std::string fixed;  ///< Kind::fixed: the value the bare flag stands for
  std::vector<std::pair<std::string, std::string>> words;          ///< Kind::words: their word -> ours
  std::vector<std::pair<std::string, std::string>> refused_words;  ///< Kind::words: their word -> why it is refused
  std::string absent;  ///< our value when the flag is not given: their default
  /// What the flag says besides, option and value; a flag that sets the option itself wins, wherever it stands.
  std::vector<std::pair<std::string, std::string>> also;
  std::vector<std::string> also_to;  ///< further options that take the flag's value, as `also`
  /// The same, but it wins over a flag that sets the option itself.
  std::vector<std::pair<std::string, std::string>> always;
  std::string why;  ///< Kind::ignored and Kind::refused

  /// What one of its words says besides, as `also`. Kind::settings: that is all the flag says, and it takes no other
  /// word.
  std::vector<std::pair<std::string, std::vector<std::pair<std::string, std::string>>>> settings;
  std::string rule;  ///< Kind::derived: the rule of derived_flags.h

  std::string option() const { return to.substr(0, to.find('[')); }  ///< "optimizer_config.betas"
};

/// What happens to a flag. undecided: whether it is given, or with which value, depends on an unknown condition of the
/// script.
enum class FlagStatus { mapped, ignored, planned, refused, unknown, undecided };
std::string word_of(FlagStatus status);

/// One flag of a command line after its conversion.
struct ConvertedFlag {
  GivenFlag given;
  FlagStatus status = FlagStatus::mapped;
  std::vector<std::string> to = {};       ///< the options that it says
  std::vector<std::string> implied = {};  ///< those that follow from it, where no flag says them
  std::string why = {};                   ///< of all but mapped
};

struct Conversion {
  options::Value recipe;  ///< their whole run: flags that were not given count with their default, whatever ours is
  std::vector<ConvertedFlag> flags = {};  ///< one for each given flag, in their order
};

/// Every flag of another program and what it becomes here: a table of mappings/flags/.
///
///     name: mindspeed-llm          what --from calls it; "program@version" where there are several
///     doc: MindSpeed-LLM 2.1       whose flags these are
///     base: megatron.yaml          rows of another table that hold here too, unless they are given again
///     spelled: underscores         flags of the base have underscores here
///     removed: {--flag: why}       flags of the base that this program refuses
///     flags: {--flag: row}
///
/// A row is exactly one of
///     to                   the value goes over unchanged; with `takes: many` all values up to the next flag, as a list
///     to + value           the bare flag stands for this value
///     to + words           their word -> our word
///     settings             their word -> options and values; a word of several words is written with blanks
///     derived: RULE        with the values of other flags it says options: the rules of derived_flags.h
///     ignored: why         harmless to drop, and what shows that; the converter says so
///     refused: why         dropping it would change the run; the converter stops
/// `to: optimizer_config.betas[0]` sets one item of a list. An option of a type that is not chosen is left out; which
/// those are, the schemas know. `absent` is our value when the flag is not given, that is, their default. `also` is
/// what the flag says besides, option and value; a flag that sets the option itself wins. `always` is the same, but
/// wins over such a flag. `settings` beside `words` is what a word says besides, as `also`; beside `to` alone it also
/// has all words that the flag takes. `also_to`, a list of options, gives them the flag's own value, as `also`.
/// `refused_words` beside `words` says of each further word why it is refused. A word may lead to a word that the
/// option does not have yet: that is planned. `takes` is how many words follow: none, one, optional (none or one) or
/// many; usually one, with `value` none. `dest` is the name of its argument where that is not the flag's with
/// underscores.
class FlagTable {
 public:
  /// The table in a file of mappings/flags/, "megatron.yaml", with its bases.
  static FlagTable from(const std::string& file, const options::Mappings& mappings);
  /// A table that has no base.
  static FlagTable from(const options::Value& table);
  /// The table that --from calls `name`; "megatron" is the usual one. Throws ConfigError, naming those there are, when
  /// there is none.
  static FlagTable named(const std::string& name, const options::Mappings& mappings);
  static constexpr const char* usual = "megatron@core_v0.12.1";

  /// Turn a command line into a recipe that repeats their run. An option of a type that is not chosen is left out;
  /// `facts` knows which those are. Refused and unknown flags are problems; ignored ones and those without effect are
  /// notes. A flag that leads to an option not implemented yet has the status `planned` unless its value changes
  /// nothing; the recipe has it all the same, and reading that recipe refuses it.
  Conversion convert(const std::vector<GivenFlag>& flags, const options::Facts& facts, options::Report& report) const;
  /// The recipe of a list of words.
  options::Value convert(const std::vector<std::string>& argv, const options::Facts& facts,
                         options::Report& report) const;

  const FlagRow* find(const std::string& flag) const;  ///< null when there is none
  const std::vector<FlagRow>& rows() const { return rows_; }
  std::vector<std::string> flags() const;
  const std::string& name() const { return name_; }
  const std::string& doc() const { return doc_; }

 private:
  void add(const options::Value& table);
  std::string name_, doc_;
  std::vector<FlagRow> rows_;
};

}  // namespace tessera::flags
