#pragma once

#include <map>
#include <string>
#include <vector>

#include "framework/interop/flags/flag_table.h"
#include "framework/options/report.h"

namespace tessera::flags {

/// Whether a value is a default: of a recipe, or because a flag is not given.
bool was_not_given(const options::Origin& at);

/// Messages about options, in terms of the flags of a command line: the table of the flags tells which flag sets which
/// option, so that a rule of recipes can be reported to the author of a script.
class FlagWords {
 public:
  /// `table` must outlive this object. `given`: the command line; its flags are preferred where several set an option.
  FlagWords(const FlagTable& table, const std::vector<GivenFlag>& given);

  /// `message` with each option ("hidden_size", "model_config.hidden_size") replaced by its flag, if one sets it. The
  /// value that a bare flag stands for belongs to the flag: "add_bias_linear: false" is "--disable-bias-linear", and
  /// "swiglu is false" is "--swiglu is not given". A name without underscore, dot or digit is a word of the sentence
  /// and stays.
  std::string of(const std::string& message) const;
  /// Puts the message and the advice of `finding` in terms of flags. If its origin is a default, or a flag that is not
  /// given, it becomes that of the first given flag that the message names; if it names none, the origin stays.
  void put_into(options::Finding& finding) const;

 private:
  const std::vector<const FlagRow*>* rows_of(const std::string& name) const;
  const FlagRow& chosen(const std::vector<const FlagRow*>& rows) const;
  bool is_given(const std::string& flag) const { return given_.count(flag) > 0; }
  /// The flag in place of `name`, which ends at `at` of `message`. Moves `at` to the end of the value that the flag
  /// stands for.
  std::string flag_for(const std::string& name, const std::vector<const FlagRow*>& rows, const std::string& message,
                       std::size_t& at) const;
  /// The same for an option that only flags without a value set. `name` itself if no flag stands for its value.
  std::string bare_flag_for(const std::string& name, const std::vector<const FlagRow*>& rows,
                            const std::string& message, std::size_t& at) const;

  std::map<std::string, std::vector<const FlagRow*>> rows_;  ///< by the option's name, with and without group
  std::map<std::string, options::Origin> given_;
};

}  // namespace tessera::flags
