#pragma once

#include <string>
#include <string_view>
#include <vector>

// Values of a script are plain strings in which two things are marked:
//
//     \x01 words \x02     something unknown, with the words that stand for it: ${NAME}, $4, $(date). May nest:
//                         $((24 / ${11})) is unknown because of ${11}
//     \x03 place \x04     the flag that follows was written at this place, "0:27": number of the file, line
//
// No script can write these four bytes: read_script_text makes blanks of them.

namespace tessera::shell {

constexpr char unknown_begin = '\x01', unknown_end = '\x02', place_begin = '\x03', place_end = '\x04';

/// Where something was written.
struct ScriptPosition {
  int file = 0;  ///< which of the files that were read, the script itself is 0
  int line = 0;  ///< from 1
};

std::string unknown(std::string_view words);
std::string place_mark(const ScriptPosition& place);

bool has_unknown(std::string_view words);
/// Without places; what is unknown stays marked.
std::string without_places(std::string_view words);
/// Without any mark: what a person reads.
std::string plain(std::string_view words);
/// The place written at the beginning of a word, if there is one, else `otherwise`.
ScriptPosition place_of(std::string_view word, const ScriptPosition& otherwise);
/// Index behind the unknown or the place that begins at `at`.
std::size_t end_of_mark(std::string_view words, std::size_t at);

}  // namespace tessera::shell
