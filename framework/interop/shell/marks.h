#pragma once

#include <string>
#include <string_view>
#include <vector>

// Values of a script are plain strings with two kinds of marks:
//
//     \x01 words \x02     an unknown value, with the words it was written as: ${NAME}, $4, $(date). May be nested:
//                         $((24 / ${11})) is unknown because of ${11}
//     \x03 place \x04     the flag that follows was written at this place, "0:27": index of the file, line
//
// No script can contain these four bytes: read_script_text replaces them by blanks.

namespace tessera::shell {

constexpr char unknown_begin = '\x01', unknown_end = '\x02', place_begin = '\x03', place_end = '\x04';

/// A position in the script files.
struct ScriptPosition {
  int file = 0;  ///< index in Reading::files; 0: the script itself
  int line = 0;  ///< from 1
};

/// `words` marked as an unknown value.
std::string unknown(std::string_view words);
/// The mark for `place`.
std::string place_mark(const ScriptPosition& place);

/// Whether `words` contains an unknown value.
bool has_unknown(std::string_view words);
/// `words` without places; unknown values stay marked.
std::string without_places(std::string_view words);
/// `words` without any marks, for people.
std::string plain(std::string_view words);
/// The place marked at the beginning of `word`; `otherwise` if there is none.
ScriptPosition place_of(std::string_view word, const ScriptPosition& otherwise);
/// Index after the end of the mark (unknown value or place) that begins at `at`.
std::size_t end_of_mark(std::string_view words, std::size_t at);

}  // namespace tessera::shell
